// Converts dQ from its fp32 sums, times the softmax scale. Runs after backward_grid_sm90.cu. sm_90a.
//
// A CTA takes kBlockM rows of Q of a head; a thread takes 8 elements at a time. Grid: q tiles * q_heads * batch, in one
// dimension. Threads: 256. d_q has 16-byte aligned rows.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "params_grid_sm90.cuh"
#include "tile/element.cuh"

namespace attnc::sm90 {

using Params = Choose<Mod::kHasBeside, BackwardGridBesideParamsSm90, BackwardGridParamsSm90>::Type;

extern "C" __global__ void __launch_bounds__(256)
    attnc_backward_finish(const __grid_constant__ Params p, const __grid_constant__ ModArgs) {
  constexpr int kChunks = kHeadDimQk / 8;
  const ForwardParams& f = p.base.forward;
  const int q_tiles = (f.q_len + kBlockM - 1) / kBlockM, head = blockIdx.x / q_tiles; // over all batches
  const int q_start = blockIdx.x % q_tiles * kBlockM, rows = min(kBlockM, f.q_len - q_start);
  const Strides& stride = p.base.d_q_stride;
  Element* const to = (Element*)p.base.d_q + head / f.q_heads * stride.batch + head % f.q_heads * stride.head;
  for (int i = threadIdx.x; i < rows * kChunks; i += 256) {
    const int row = q_start + i / kChunks, column = i % kChunks * 8;
    const float4* const from = (const float4*)(p.d_q_sums + ((long long)head * f.q_len + row) * kHeadDimQk + column);
    const float4 low = from[0], high = from[1];
    *(uint4*)(to + row * stride.row + column) = {
        pack2<Element>(low.x * f.scale, low.y * f.scale), pack2<Element>(low.z * f.scale, low.w * f.scale),
        pack2<Element>(high.x * f.scale, high.y * f.scale), pack2<Element>(high.z * f.scale, high.w * f.scale)};
  }
}

} // namespace attnc::sm90
