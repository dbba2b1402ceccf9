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

#include "algo/pairs.cuh"

namespace attnc::naive {

using namespace pairs;

constexpr int kRows = 8; // rows of a CTA, one per warp

/// Calls function(params, row) for the row of q that the warp owns, if it exists.
template <class Function>
ATTNC_DEVICE void at_query_row(const BackwardParams& launch, const ModArgs& args, Function function) {
  const long long index = (long long)blockIdx.x * kRows + threadIdx.x / 32;
  int b, h, q_idx;
  if constexpr (kIsRagged<Mod>) {
    const RaggedRow row = ragged_q_row<Mod>(launch.forward, args, index);
    b = row.b, h = row.h, q_idx = row.row;
    if (!row.exists) return;
  } else {
    const ForwardParams& f = launch.forward;
    if (index >= (long long)f.batch * f.q_heads * f.q_len) return;
    q_idx = index % f.q_len, h = index / f.q_len % f.q_heads, b = index / f.q_len / f.q_heads;
  }
  const BackwardParams& p = params_of<Mod>(launch, args, b);
  function(p, QueryRow(p.forward, args, b, h, q_idx));
}

extern "C" __global__ void __launch_bounds__(32 * kRows, 1)
    attnc_backward_sums(const __grid_constant__ BackwardParams launch, const __grid_constant__ ModArgs args) {
  at_query_row(launch, args, [&](const BackwardParams& p, const QueryRow& row) { sum_up_row(p, args, row); });
}

extern "C" __global__ void __launch_bounds__(32 * kRows, 1)
    attnc_backward_q(const __grid_constant__ BackwardParams launch, const __grid_constant__ ModArgs args) {
  at_query_row(launch, args, [&](const BackwardParams& p, const QueryRow& row) {
    write_d_q(p, args, row, p.row_sums[row.index], [](int, Contribution) {});
  });
}

extern "C" __global__ void __launch_bounds__(32 * kRows, 1)
    attnc_backward_kv(const __grid_constant__ BackwardParams launch, const __grid_constant__ ModArgs args) {
  const long long index = (long long)blockIdx.x * kRows + threadIdx.x / 32;
  int kv_b, kv_head, kv_idx;
  if constexpr (kIsRagged<Mod>) {
    const RaggedRow row = ragged_kv_row<Mod>(launch.forward, args, index);
    kv_b = row.b, kv_head = row.h, kv_idx = row.row;
    if (!row.exists) return;
  } else {
    const ForwardParams& f = launch.forward;
    if (index >= (long long)launch.kv_batch * f.kv_heads * f.kv_len) return;
    kv_idx = index % f.kv_len, kv_head = index / f.kv_len % f.kv_heads, kv_b = index / f.kv_len / f.kv_heads;
  }
  const BackwardParams& p = params_of<Mod>(launch, args, kv_b);
  const ForwardParams& f = p.forward;
  KvSums sums;
  const int batches = batches_of_kv<Mod>(p, kv_idx);
  for (int i = 0; i < batches * f.group; ++i) {
    const int b = kv_b + i / f.group, h = kv_head * f.group + i % f.group;
    const auto walk = walk_of(f.q_len, p.columns, b, h, kv_idx, p.columns.kv_block, p.columns.q_block);
    for (int n = 0; n < walk.count; ++n) {
      const Step step = walk.at(n);
      const int q_idx = step.start + int(threadIdx.x) % 32;
      const QueryRow row(f, args, b, h, min(q_idx, f.q_len - 1));
      sums.add(p, b, h, step.start,
               contribution(p, args, row, kv_idx, q_idx < f.q_len, step.flags & kStepMasked, p.row_sums[row.index]));
    }
  }
  sums.store<false>(p, kv_b, kv_head, kv_idx);
}

} // namespace attnc::naive
