// Online softmax that puts off rescaling, over rows whose columns lie in the four lanes of a quad.
//
// Weights are 2^y with y = factor x + bias: x a score in units of 1 / factor of log2, -bias the row's reference. Any
// reference gives the same result after normalisation; it follows the row's maximum only when some y exceeds a slack, so
// that weights stay below 2^slack, far from the limits of f32 and f16, and sums and outputs are hardly ever rescaled.
// The slack is 0 where rows have few columns, kExactSteps tiles at most: there the largest weight counts for much, and as
// exactly 1 it does not round (without that, RMSE of causal attention over 2048 columns rises by 4 %; with slack 0 in
// every row's first steps, a window of 1024 is slower by some 6 %). Elsewhere it is kSlack.
//
// Looking for such a y takes no float comparison, since integers have an instruction for the maximum of three: positive
// floats compare as their bits do, and a negative float is a negative integer.
#pragma once

#include "algo/online_softmax.cuh"

namespace attnc {

constexpr float kSlack = 8.f;
constexpr int kExactSteps = 8;

struct LazyRow {
  static constexpr int kUnset = 0x7fffffff;

  float bias = 0.f;
  int top = kUnset; // greatest y of this lane, as bits, if positive; kUnset: the row has not seen a live column
  float sum = 0.f;  // this lane's part

  /// Whether the reference must move before weights are formed. Always so while there is none.
  ATTNC_DEVICE bool exceeds(float slack) const { return top > __float_as_int(slack); }

  /// Moves the reference to the row's maximum, `y_max` being this lane's greatest y. All lanes of the warp. Returns by
  /// how much y falls, and sets the factor for what was summed so far.
  ATTNC_DEVICE float move(float y_max, float& rescale) {
    y_max = quad_max(fmaxf(y_max, __int_as_float(top))); // an unset top is not a number, and ignored
    const bool unset = top == kUnset, dead = y_max == negative_infinity();
    const float fall = unset ? dead ? 0.f : y_max : fmaxf(y_max, 0.f);
    rescale = unset ? 1.f : ptx::ex2(-fall);
    sum *= rescale;
    bias -= fall;
    if (!dead) top = 0;
    return fall;
  }

  /// Ends the row: 1 / sum, or 0 if no column lives.
  ATTNC_DEVICE float finish() {
    sum = quad_sum(sum);
    return sum == 0.f ? 0.f : ptx::rcp(sum);
  }

  /// Natural-log sum of exponentials; -inf if no column lives.
  ATTNC_DEVICE float lse() const { return sum == 0.f ? negative_infinity() : (ptx::lg2(sum) - bias) * kLn2; }
  /// The greatest score in natural units; -inf if no column lives. All lanes of the quad, after finish().
  ATTNC_DEVICE float max() const {
    const float above = quad_max(fmaxf(__int_as_float(top), 0.f));
    return unless_nan(sum, top == kUnset ? negative_infinity() : (above - bias) * kLn2);
  }
};

} // namespace attnc
