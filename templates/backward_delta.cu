// Before the backward pass: delta = rows of dO O - d_lse, what the gradient of a weight is taken against. Any sm.
//
// A warp owns a row of O. Grid: rows / kWarps, in one dimension. Threads: 32 kWarps.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "params.cuh"
#include "tile/element.cuh"

namespace attnc::backward_delta {

extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attnc_backward_delta(const __grid_constant__ BackwardParams p, const __grid_constant__ ModArgs) {
  const ForwardParams& f = p.forward;
  const long long index = (long long)blockIdx.x * kWarps + threadIdx.x / 32;
  if (index >= (long long)f.batch * f.q_heads * f.q_len) return;
  const int q_idx = index % f.q_len, h = index / f.q_len % f.q_heads, b = index / f.q_len / f.q_heads;
  const Element* out = (const Element*)f.out + b * f.out_stride.batch + h * f.out_stride.head + q_idx * f.out_stride.row;
  const Element* d_out =
      (const Element*)p.d_out + b * p.d_out_stride.batch + h * p.d_out_stride.head + q_idx * p.d_out_stride.row;
  float sum = 0.f;
  for (int d = threadIdx.x % 32; d < kHeadDimV; d += 32) sum += to_float(out[d]) * to_float(d_out[d]);
#pragma unroll
  for (int lanes = 16; lanes; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
  if (threadIdx.x % 32 == 0) p.delta[index] = sum - (p.d_lse ? p.d_lse[index] : 0.f);
}

} // namespace attnc::backward_delta
