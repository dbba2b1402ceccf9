// What rows of q with a large lse (backward_large_q.cu) contribute to dK and dV: added to what other kernels wrote. Any sm, fp32
// arithmetic, pair by pair (algo/pairs.cuh), and so slow; where there are none, a CTA reads a number a tile of q and ends.
// Deterministic.
//
// A CTA has a tile of rows of k and v, a warp one of them at a time, of all query heads of the KV head and, where k and v are
// broadcast, of all batches.
//
// No shared memory. Barrier: __syncthreads_or, once, for whether a row of q is large.
//
// Grid: kv tiles * kv_heads * kv_batch, in one dimension. Threads: 32 kWarps. The mod is written plain.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/gradients.cuh"
#include "algo/pairs.cuh"

namespace attnc::backward_large {

using namespace pairs;

extern "C" __global__ void __launch_bounds__(32 * kWarps, 1)
    attnc_backward_large_kv(const __grid_constant__ BackwardParams launch, const __grid_constant__ ModArgs args) {
  int kv_b, kv_head, kv_start;
  if constexpr (kIsRagged<Mod>) {
    const HeadTile tile = ragged_kv_tile<Mod, kBlockN>(launch.forward, args, blockIdx.x);
    kv_b = tile.b, kv_head = tile.h, kv_start = tile.start;
  } else {
    const int kv_tiles = (launch.forward.kv_len + kBlockN - 1) / kBlockN, head = blockIdx.x / kv_tiles;
    kv_start = blockIdx.x % kv_tiles * kBlockN;
    kv_b = head / launch.forward.kv_heads, kv_head = head % launch.forward.kv_heads;
  }
  const BackwardParams& p = params_of<Mod>(launch, args, kv_b);
  const ForwardParams& f = p.forward;
  if (!has_rows<Mod>(kv_start, f.kv_len)) return;
  const int heads = (p.kv_batch == f.batch || kIsRagged<Mod> ? 1 : f.batch) * f.group;
  const int tiles = (f.q_len + kBlockM - 1) / kBlockM;
  const auto is_tile_large = [&](int i, int tile) {
    const int b = kv_b + i / f.group, h = kv_head * f.group + i % f.group;
    return launch.large_tiles[head_tile_of<Mod, kBlockM>(f, args, b, h, tile * kBlockM)] != 0;
  };
  bool any = false;
  for (int i = threadIdx.x; i < heads * tiles; i += 32 * kWarps) any |= is_tile_large(i / tiles, i % tiles);
  if (!__syncthreads_or(any)) return;
#pragma unroll 1
  for (int kv_idx = kv_start + threadIdx.x / 32; kv_idx < min(kv_start + kBlockN, f.kv_len); kv_idx += kWarps) {
    KvSums sums;
#pragma unroll 1
    for (int i = 0; i < heads; ++i) {
      const int b = kv_b + i / f.group, h = kv_head * f.group + i % f.group;
      const auto walk = walk_of(f.q_len, p.columns, b, h, kv_idx, p.columns.kv_block, p.columns.q_block);
#pragma unroll 1
      for (int n = 0; n < walk.count; ++n) {
        const Step step = walk.at(n);
        if (!is_tile_large(i, step.start / kBlockM)) continue;
        const int q_idx = step.start + int(threadIdx.x) % 32;
        const QueryRow row(f, args, b, h, min(q_idx, f.q_len - 1));
        const bool counts = q_idx < f.q_len && is_large(row.lse);
        if (!__any_sync(0xffffffffu, counts)) continue;
        sums.add(p, b, h, step.start,
                 contribution(p, args, row, kv_idx, counts, step.flags & kStepMasked, counts ? p.row_sums[row.index] : 1.f));
      }
    }
    sums.store<true>(p, kv_b, kv_head, kv_idx);
  }
}

} // namespace attnc::backward_large
