// Online softmax in base 2 over rows whose columns lie in the four lanes of a quad (Milakov and Gimelshein,
// arXiv:1805.02867; the quad layout is that of the mma accumulators).
//
// A row keeps the running maximum of x and the sum of 2^(factor (x - maximum)), where factor x is the score in units of
// log2. x is the natural score (factor log2 e), or q k^T before scaling (factor scale log2 e) if nothing comes between.
#pragma once

#include "ptx/math.cuh"

namespace attnc {

constexpr float kLog2e = 1.44269504088896340736f;
constexpr float kLn2 = 0.69314718055994530942f;

ATTNC_DEVICE float negative_infinity() { return __int_as_float(0xff800000); }

ATTNC_DEVICE float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
ATTNC_DEVICE float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

struct SoftmaxRow {
  float max = negative_infinity(); // of x; equal in the lanes of a quad
  float sum = 0.f;                 // this lane's part

  /// Takes in a tile whose largest x is `tile_max` (over the quad). Returns the factor for what was summed so far, and
  /// sets `bias` so that the tile's weights are 2^(factor x + bias). A row that saw only -inf gets weights 0.
  ATTNC_DEVICE float advance(float tile_max, float factor, float& bias) {
    const float new_max = fmaxf(max, tile_max);
    bias = new_max == negative_infinity() ? 0.f : -new_max * factor;
    const float rescale = ptx::ex2(max * factor + bias);
    max = new_max;
    sum *= rescale;
    return rescale;
  }

  /// Ends the row: 1 / sum, or 0 if no column lives.
  ATTNC_DEVICE float finish() {
    sum = quad_sum(sum);
    return sum == 0.f ? 0.f : 1.f / sum;
  }

  /// Natural-log sum of exponentials; -inf if no column lives.
  ATTNC_DEVICE float lse(float factor) const {
    return sum == 0.f ? negative_infinity() : (max * factor + ptx::lg2(sum)) * kLn2;
  }
};

} // namespace attnc
