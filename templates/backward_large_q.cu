// dQ of rows whose lse is so large that f32 cannot normalise by it (is_large(), algo/gradients.cuh): padding of -1e9 in all
// columns, say. Other backward kernels take such rows for dead. Any sm, fp32 arithmetic, pair by pair (algo/pairs.cuh), and so slow;
// where there are none, a CTA reads the lse of its rows and ends.
//
// Behind the kernels that wrote dQ. A CTA has a tile of rows, a warp one of them at a time: it sets the row's sum, writes its dQ, and
// adds the gradients of its scores to the sums along diagonals, if there are any. large_tiles tells backward_large_kv.cu which
// tiles have such rows.
//
// No shared memory. Barrier: __syncthreads_or, once, for whether a row of the tile is large.
//
// Grid: q tiles * q_heads * batch, in one dimension. Threads: 32 kWarps. The mod is written plain.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/gradients.cuh"
#include "algo/pairs.cuh"
#include "ptx/red.cuh"

namespace attnc::backward_large {

using namespace pairs;

extern "C" __global__ void __launch_bounds__(32 * kWarps, 1)
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

} // namespace attnc::backward_large
