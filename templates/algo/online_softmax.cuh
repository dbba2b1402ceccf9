// Online softmax in base 2 over rows whose columns lie in the four lanes of a quad (Milakov and Gimelshein,
// arXiv:1805.02867; the quad layout is that of the mma accumulators).
//
// A row keeps the running maximum, as a bias, and the sum of 2^(factor (x - maximum)), where factor x is the score in
// units of log2. x is the natural score (factor log2 e), or q k^T before scaling (factor scale log2 e) if nothing comes
// between. O needs rescaling only in steps that raise a maximum, which soon become rare. Letting the reference lag behind
// the maximum (FlashAttention-4, arXiv:2603.05451) would make them rarer still, but costs accuracy: a row's largest weight
// is then no longer 1, and rounds (RMSE of the output +3 to +6 % in bf16).
#pragma once

#include "ptx/math.cuh"

namespace attnc {

constexpr float kLog2e = 1.44269504088896340736f;
constexpr float kLn2 = 0.69314718055994530942f;
constexpr float kSmallestNormal = 1.17549435e-38f;

ATTNC_DEVICE float negative_infinity() { return __int_as_float(0xff800000); }

/// x, or NaN if `sum` is: what becomes of a row in which some live score is +inf or NaN. Its weights, so its sum, output
/// and lse are NaN by themselves; a maximum taken with fmaxf is not.
ATTNC_DEVICE float unless_nan(float sum, float x) { return sum == sum ? x : sum; }

ATTNC_DEVICE float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
ATTNC_DEVICE float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

struct SoftmaxRow {
  float bias = __int_as_float(0x7f800000); // -factor maximum; +inf before the first live column; equal in a quad
  float sum = 0.f;                         // this lane's part

  /// True if a tile with the largest x `tile_max` (over the quad) raises the maximum.
  ATTNC_DEVICE bool must_rescale(float tile_max, float factor) const { return tile_max * factor + bias > 0.f; }

  /// Raises the maximum to `tile_max` if it must. Returns the factor for what was summed so far.
  ATTNC_DEVICE float rescale(float tile_max, float factor) {
    if (!must_rescale(tile_max, factor)) return 1.f;
    const float old_bias = bias;
    bias = -tile_max * factor;
    const float correction = ptx::ex2(bias - old_bias);
    sum *= correction;
    return correction;
  }

  /// The weight of a column is 2^(factor x + weight_bias()); a row that saw only -inf gets weights 0.
  ATTNC_DEVICE float weight_bias() const { return bias == __int_as_float(0x7f800000) ? 0.f : bias; }

  /// Ends the row: 1 / sum, or 0 if no column lives.
  ATTNC_DEVICE float finish() {
    sum = quad_sum(sum);
    return sum == 0.f ? 0.f : 1.f / sum;
  }

  /// Natural-log sum of exponentials; -inf if no column lives. After finish().
  ATTNC_DEVICE float lse() const { return sum == 0.f ? negative_infinity() : (ptx::lg2(sum) - bias) * kLn2; }
};

} // namespace attnc
