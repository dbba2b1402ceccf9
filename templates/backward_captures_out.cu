// The last step of gradients of captures: converts the sums of one capture to the requested tensor, in its dtype and
// strides. Any sm.
//
// A thread owns an element of the capture. Grid: elements / (32 kWarps), in one dimension. Threads: 32 kWarps.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/exact_sum.cuh"
#include "params.cuh"
#include "tile/element.cuh"

namespace attnc::backward_captures_out {

extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attnc_backward_captures_out(const __grid_constant__ CaptureOutputParams p, const __grid_constant__ ModArgs) {
  const long long element = (long long)blockIdx.x * (32 * kWarps) + threadIdx.x;
  if (element >= p.sum.elements) return;
  float value;
  if (p.exact) {
    ExactWord words[kExactWords];
#pragma unroll
    for (int k = 0; k < kExactWords; ++k) words[k] = ((const ExactWord*)p.sum.slots)[k * p.sum.elements + element];
    value = exact_total(words);
  } else {
    value = ((const float*)p.sum.slots)[element];
  }
  long long rest = element, at = 0;
  for (int axis = p.rank; axis-- > 0;) {
    at += rest % p.shape[axis] * p.stride[axis];
    rest /= p.shape[axis];
  }
  if (p.element_bits == 32)
    ((float*)p.out)[at] = value;
  else if (p.is_bf16)
    ((Bf16*)p.out)[at] = from_float<Bf16>(value);
  else
    ((F16*)p.out)[at] = from_float<F16>(value);
}

} // namespace attnc::backward_captures_out
