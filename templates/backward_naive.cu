// Backward attention, short and obviously right: the GPU oracle. Any sm, fp32 arithmetic, deterministic. algo/pairs.cuh
// has the formulas.
//
// Three kernels. attnc_backward_sums: a warp owns a row of q and adds up its weights. attnc_backward_q: a warp owns a
// row of q and writes its dQ. attnc_backward_kv: a warp owns a row of k and v; a lane takes one of 32 rows of q at a
// time, for all query heads of the KV head and, if k and v are broadcast, all batches. With lists, unlisted chunks are
// skipped, and full ones do not call mask_mod. Rows are read as needed; only the sums are kept from one kernel to the
// next.
//
// No shared memory. Grid: rows / 8 in one dimension, 256 threads.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/pair_rows.cuh"

namespace attnc::naive {

using namespace pairs;

extern "C" __global__ void __launch_bounds__(32 * kRowsOfCta, 1)
    attnc_backward_sums(const __grid_constant__ BackwardParams launch, const __grid_constant__ ModArgs args) {
  at_query_row(launch, args, [&](const BackwardParams& p, const QueryRow& row) { sum_up_row(p, args, row); });
}

extern "C" __global__ void __launch_bounds__(32 * kRowsOfCta, 1)
    attnc_backward_q(const __grid_constant__ BackwardParams launch, const __grid_constant__ ModArgs args) {
  at_query_row(launch, args, [&](const BackwardParams& p, const QueryRow& row) {
    const float sum = p.row_sums[row.index];
    const auto of = [&](int kv_idx, bool exists, bool masked) {
      return contribution(p, args, row, kv_idx, exists, masked, sum);
    };
    write_d_q(p, row, of, [](int, Contribution) {});
  });
}

extern "C" __global__ void __launch_bounds__(32 * kRowsOfCta, 1)
    attnc_backward_kv(const __grid_constant__ BackwardParams launch, const __grid_constant__ ModArgs args) {
  write_d_kv(launch, args, [&](const BackwardParams& p, const QueryRow& row, int kv_idx, bool exists, bool masked) {
    return contribution(p, args, row, kv_idx, exists, masked, p.row_sums[row.index]);
  });
}

} // namespace attnc::naive
