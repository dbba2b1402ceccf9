// Converts dQ from its fp32 sums, times the softmax scale. Runs after backward_sm80.cu. sm_80 and later.
//
// A CTA takes a tile of kBlockM rows of Q. Each warp loads its fragments, as a CTA of backward_sm80.cu added them up,
// and writes them to shared memory, so that whole rows are stored. Grid: q tiles * q_heads * batch, in one dimension.
// Threads: 32 kWarps.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/d_q_sums_mma.cuh"
#include "algo/sequence.cuh"
#include "params_backward_sm80.cuh"
#include "tile/copy_tile.cuh"
#include "tile/store_packed.cuh"

namespace attnc::sm80 {

extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attnc_backward_finish(const __grid_constant__ BackwardParamsSm80 p, const __grid_constant__ ModArgs args) {
  using Tile = PaddedTile<Element, kBlockM, kHeadDimQk>;
  __shared__ __align__(16) unsigned char memory[Tile::kBytes];
  const Tile tile = {ptx::shared_address(memory)};
  const auto [b, h, q_start] = q_tile_at<Mod, kBlockM>(p.base.forward, args, blockIdx.x);
  const BackwardParams& base = params_of<Mod>(p.base, args, b);
  const ForwardParams& f = base.forward;
  if (!has_rows<Mod>(q_start, f.q_len)) return;
  const mma::DqSums sums = {int(threadIdx.x) / 32};
  mma::DqSums::Part d_q;
  sums.load(d_q, p.d_q_sums, blockIdx.x);
  mma::write_scaled(tile, sums.first_row(), sums.first_column(), d_q, f.scale);
  __syncthreads();
  constexpr int kRows = kBlockM / kWarps;
  const int first = sums.warp * kRows;
  const Strides& stride = base.d_q_stride;
  Element* to = (Element*)base.d_q + b * stride.batch + h * stride.head;
  copy_out(tile.rows<kRows>(first), to, stride.row, q_start + first, f.q_len, f.vectors);
}

} // namespace attnc::sm80
