// Adds to the gradient of a capture in device memory: by fp32 atomics, or exactly, so that the result does not depend
// on the order of CTAs (kDeterministic). If a thread owns its slot, it adds or stores without atomics.
#pragma once

#include "attnc_config.cuh"

#include "algo/exact_sum.cuh"
#include "params.cuh"

namespace attnc {

/// The words of one element's exact sum.
struct DeviceWords {
  ExactWord* first;
  long long stride;
  ATTNC_DEVICE void add(int k, ExactWord amount) const { atomicAdd(first + k * stride, amount); }
  ATTNC_DEVICE void mark(unsigned bits) const { atomicOr(first + kExactBins * stride, ExactWord(bits)); }
};

/// Adds x to an element's slot.
ATTNC_DEVICE void add_to(const CaptureSum& sum, long long element, float x) {
  if (x == 0.f || !sum.slots) return;
  if (sum.owned)
    ((float*)sum.slots)[element] = sum.owned == 2 ? x : ((float*)sum.slots)[element] + x;
  else if constexpr (kDeterministic)
    exact_add(__float_as_uint(x), DeviceWords{(ExactWord*)sum.slots + element, sum.elements});
  else
    atomicAdd((float*)sum.slots + element, x);
}

} // namespace attnc
