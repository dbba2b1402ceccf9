// Converts dQ from its fp32 sums, times the softmax scale. Runs after backward_grid_sm80.cu. sm_80 and later.
//
// A CTA takes kBlockM rows of Q of a head; a thread takes 16 columns of a row at a time. Grid: q tiles * q_heads *
// batch, in one dimension. Threads: 32 kWarps.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/d_q_rows_mma.cuh"
#include "params_grid_sm80.cuh"

namespace attnc::sm80 {

extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attnc_backward_finish(const __grid_constant__ BackwardGridParamsSm80 p, const __grid_constant__ ModArgs) {
  using mma::DqRows;
  constexpr int kGroups = DqRows::kFloats / 16;
  const ForwardParams& f = p.base.forward;
  const int q_tiles = (f.q_len + kBlockM - 1) / kBlockM, head = blockIdx.x / q_tiles; // over all batches
  const int q_start = blockIdx.x % q_tiles * kBlockM, rows = min(kBlockM, f.q_len - q_start);
  const Strides& stride = p.base.d_q_stride;
  Element* const to = (Element*)p.base.d_q + head / f.q_heads * stride.batch + head % f.q_heads * stride.head;
  for (int i = threadIdx.x; i < rows * kGroups; i += 32 * kWarps) {
    const int row = q_start + i / kGroups, column = i % kGroups * 16;
    const float4* const from =
        (const float4*)(p.d_q_sums + ((long long)head * f.q_len + row) * DqRows::kFloats + column);
    float sums[16];
#pragma unroll
    for (int four = 0; four < 4; ++four) {
      const float4 x = from[four];
      sums[4 * four] = x.x, sums[4 * four + 1] = x.y, sums[4 * four + 2] = x.z, sums[4 * four + 3] = x.w;
    }
    const auto at = [&](int c) { return sums[DqRows::place(c / 8, c % 8 / 2, c % 2)] * f.scale; };
    Element* const line = to + row * stride.row + column;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int c = 8 * n;
      if (column + c >= kHeadDimQk) continue;
      if (f.vectors) {
        *(uint4*)(line + c) = {pack2<Element>(at(c), at(c + 1)), pack2<Element>(at(c + 2), at(c + 3)),
                               pack2<Element>(at(c + 4), at(c + 5)), pack2<Element>(at(c + 6), at(c + 7))};
      } else {
#pragma unroll
        for (int d = 0; d < 8; ++d) line[c + d] = from_float<Element>(at(c + d));
      }
    }
  }
}

} // namespace attnc::sm80
