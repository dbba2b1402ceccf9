// Converts dQ from its fp32 sums, times the softmax scale. Runs after backward_sm90.cu, backward_192_sm90.cu or
// backward_wide_sm90.cu. sm_90a.
//
// A CTA of two warpgroups takes a tile of kBlockM rows of Q; each thread converts its fragment, as backward_sm90.cu
// left it. Grid: q tiles * q_heads * batch, in one dimension. Threads: 256. d_q has 16-byte aligned rows.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/d_q_sums.cuh"
#include "algo/sequence.cuh"
#include "params_sm90.cuh"
#include "tile/store_wgmma.cuh"

namespace attnc::sm90 {

extern "C" __global__ void __launch_bounds__(256)
    attnc_backward_finish(const __grid_constant__ BackwardParamsSm90 p, const __grid_constant__ ModArgs args) {
  const int q_tiles = q_tiles_of<Mod, kBlockM>(p.base.forward), group = threadIdx.x / 128;
  int q_start = blockIdx.x % q_tiles * kBlockM, b = 0;
  const int head = blockIdx.x / q_tiles; // over all batches; a ragged batch has one set of heads
  if constexpr (kIsRagged<Mod>) {
    const RowTile at = q_tile_in_slot<Mod, kBlockM>(args, q_start / kBlockM, p.base.forward.batch);
    b = at.b, q_start = at.start;
  }
  const BackwardParams& base = params_of<Mod>(p.base, args, b);
  const ForwardParams& f = base.forward;
  if (!has_rows<Mod>(q_start, f.q_len)) return;
  const float* from = DqSums::part(p.d_q_sums, blockIdx.x, group) + threadIdx.x % 128 * 4;
  const bool holds = !kTakesTurns || p.turns[2 * blockIdx.x + group] > 0;
  DqSums::Part x;
#pragma unroll
  for (int n = 0; n < DqSums::kColumns / 8; ++n) {
    const float4 sums = holds ? *(const float4*)(from + 512 * n) : float4{};
    x.x[0][n][0] = sums.x, x.x[0][n][1] = sums.y, x.x[0][n][2] = sums.z, x.x[0][n][3] = sums.w;
  }
  Element* to =
      (Element*)base.d_q + head / f.q_heads * p.base.d_q_stride.batch + head % f.q_heads * p.base.d_q_stride.head;
  const int row_of_tile = threadIdx.x / 32 % 4 * 16 + x.row(0) + (DqSums::kByRows ? 64 * group : 0);
  constexpr int kFirst = kHeadDimQk < x.kColumns ? kHeadDimQk : x.kColumns, kSecond = kHeadDimQk - kFirst;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = q_start + row_of_tile + 8 * r;
    Element* line = to + row * p.base.d_q_stride.row;
    if (DqSums::kByRows || group == 0)
      wgmma::store_row<kFirst>(line, x, r, f.scale, row < f.q_len);
    else if constexpr (kSecond > 0)
      wgmma::store_row<kSecond>(line + x.kColumns, x, r, f.scale, row < f.q_len);
  }
}

} // namespace attnc::sm90
