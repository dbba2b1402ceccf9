// Forms of the way from products q k^T to exponents of two, which a mod names as its Mod::Exponents (contract.cuh). Kernels call
// them all alike:
//
//   Form(scale, factors)     once for a tile of rows. scale: the softmax scale; factors: what Mod::factors() gives
//   kCallsScore              products go through Mod::score() first, each times `score_scale`
//
// Forward, where references follow the maxima (softmax.cuh says what x, unit and bias are):
//
//   to_scores(x, step, kv_float)
//                            all elements of a fragment, in place. kv_float: position of the lane's first column, as
//                            Mod::col() counts it
//   is_flipped(), to_score(x, bias, kv_float)
//                            the same of one element, where lanes' rows differ in form: x is negated before if it is_flipped().
//                            It lacks nothing
//   unit(), weight_factor()  natural units of score in one of x, positive; and log2(e) times that
//   kKeepsDead               NaN and inf stay where they are. If not, elements that are dead are to be set to 0 before, and
//                            to -inf afterwards
//   kIsBiased                x are exponents, bias and all, so that sizes of scores are to be bounded: may_be_large() if not
//   kIsLinear                a term grows with the position: LinearExponents. x lacks `ahead` of the step
//
// Backward, where the reference is known, of one element:
//
//   exponent(x, bias, kv_float)
//                            log2(e) score + bias
//   kGradientIsOne           the score is the product times the scale plus what does not depend on it. Else, without
//                            kCallsScore:
//   capped(x), gradient(y)   y: the exponent without bias; the derivative of the score by the product times the scale
//   capped_small(x), are_small(fragment)   a faster capped() where all products are small
//
// ProductExponents, no score_mod; LinearExponents, score + slope kv_idx; ScoreExponents, any other; TanhExponents,
// out tanh(in score), in tanh_exponents.cuh.
#pragma once

#include "algo/softmax.cuh"
#include "mod/contract.cuh"

namespace attnc {

constexpr float kSmallestNormal = 1.17549435e-38f;
/// Of what a score is counted in, so that what is divided by it is finite.
constexpr float kSmallestUnit = 5.42101086e-20f; // 2^-64

template <bool CallsScore, bool IsLinear> struct AffineExponents {
  static constexpr bool kCallsScore = CallsScore;
  static constexpr bool kKeepsDead = true;
  static constexpr bool kIsBiased = false;
  static constexpr bool kGradientIsOne = !CallsScore;
  static constexpr bool kIsLinear = IsLinear;

  float score_scale; // of products before score()
  float natural;     // units of score in one of what is left; negative: the greatest product has the least score
  float factor;      // log2(e) times that
  float slope;       // of positions, in powers of two
  float rise;        // of x, from position to position
  float positive;    // `natural` without its sign, and at least kSmallestUnit
  float by;          // log2(e) times that

  AffineExponents() = default;
  ATTNC_DEVICE AffineExponents(float scale, ScoreFactors factors)
      : score_scale(scale * factors.in), natural(CallsScore ? factors.out : scale), factor(kLog2e * natural),
        slope(kLog2e * factors.slope), positive(fmaxf(fabsf(natural), kSmallestUnit)), by(kLog2e * positive) {
    rise = __fdividef(factors.slope, unit());
    rise += __fdividef(__fmaf_rn(-rise, unit(), factors.slope), unit());
  }

  ATTNC_DEVICE float exponent(float x, float bias, float kv_float) const {
    return x * factor + (IsLinear ? slope * kv_float + bias : bias);
  }

  ATTNC_DEVICE float unit() const { return positive; }
  ATTNC_DEVICE float weight_factor() const { return by; }
  ATTNC_DEVICE static constexpr bool may_be_large() { return false; }

  ATTNC_DEVICE bool is_flipped() const { return !CallsScore && natural < 0.f; }
  ATTNC_DEVICE float to_score(float x, float, float kv_float) const { return IsLinear ? x + rise * kv_float : x; }
  template <class Scores, int Rows>
  ATTNC_DEVICE void to_scores(Scores& x, StepBias<AffineExponents, Rows>& step, float kv_float) const {
    if (is_flipped()) [[unlikely]]
      x.for_each([](float& element, int) { element = -element; });
    if constexpr (IsLinear) {
#pragma unroll
      for (int r = 0; r < Rows; ++r) {
        step.ahead[r] = rise * kv_float;
#pragma unroll
        for (int n = 0; n < Scores::kGroups; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) x.at(r, n, e) += rise * float(8 * n + e);
      }
    }
  }
};

} // namespace attnc
