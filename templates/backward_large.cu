// Gradients of rows whose lse is so large that f32 cannot normalise by it (is_large(), algo/gradients.cuh): padding of -1e9 in
// all columns, say. Other backward kernels take such rows for dead. Any sm, fp32 arithmetic, pair by pair (algo/pairs.cuh), and so
// slow; where there are none, a CTA reads the lse of its rows and ends. Deterministic, but for the sums along diagonals.
//
// Two kernels, behind those that wrote dQ, dK and dV. attnc_backward_large_q: a CTA has a tile of rows of q, a warp one row at a
// time; it notes which tiles have such rows, sets their sums, writes their dQ, and adds the gradients of their scores to the
// sums along diagonals, if there are any. attnc_backward_large_kv: a CTA has a tile of rows of k and v, a warp one row at a time,
// and adds what such rows contribute to dK and dV.
//
//   shared memory   bytes   lifetime
//   is_large        1       attnc_backward_large_q: whether a row of the tile is
//
// Grid: q tiles * q_heads * batch, kv tiles * kv_heads * kv_batch, in one dimension. Threads: 32 kWarps. The mod is written plain.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/gradients.cuh"
#include "algo/pairs.cuh"
#include "ptx/red.cuh"

namespace attnc::backward_large {

using namespace pairs;

extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attnc_backward_large_q(const __grid_constant__ BackwardParams launch, const __grid_constant__ ModArgs args) {
  int b, h, q_start;
  if constexpr (kIsRagged<Mod>) {
    const HeadTile tile = ragged_tile<Mod, kBlockM>(launch.forward, args, blockIdx.x);
    b = tile.b, h = tile.h, q_start = tile.start;
  } else {
    const int q_tiles = q_tiles_of<Mod, kBlockM>(launch.forward), head = blockIdx.x / q_tiles;
    q_start = blockIdx.x % q_tiles * kBlockM, b = head / launch.forward.q_heads, h = head % launch.forward.q_heads;
  }
  const BackwardParams& p = params_of<Mod>(launch, args, b);
  const ForwardParams& f = p.forward;
  if (!has_rows<Mod>(q_start, f.q_len)) return;
  const int rows = min(kBlockM, f.q_len - q_start);
  const float* const lse = f.lse + row_of_all(f, b, h, q_start);
  bool any = false;
  for (int i = threadIdx.x; i < rows; i += 32 * kWarps) any |= is_large(lse[i]);
  any = __syncthreads_or(any);
  if (threadIdx.x == 0) launch.large_tiles[head_tile_of<Mod, kBlockM>(f, args, b, h, q_start)] = any;
  if (!any) return;
#pragma unroll 1
  for (int i = threadIdx.x / 32; i < rows; i += kWarps) {
    if (!is_large(lse[i])) continue;
    const QueryRow row(f, args, b, h, q_start + i);
    const float sum = sum_up_row(p, args, row);
    float* const diagonals = p.diagonals ? p.diagonals + (long long)(b * f.q_heads + h) * (f.q_len + f.kv_len) : nullptr;
    write_d_q(p, args, row, sum, [&](int kv_idx, Contribution mine) {
      if (diagonals && mine.g != 0.f) ptx::red_add(diagonals + f.kv_len - 1 + row.q_idx - kv_idx, mine.g);
    });
  }
}

extern "C" __global__ void __launch_bounds__(32 * kWarps)
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
