// The forms that turn products q k^T into exponents of two. A mod names one as its Mod::Exponents (contract.cuh);
// kernels use all of them through one interface:
//
//   Form(scale, factors)     Constructed once per tile of rows. scale: the softmax scale; factors: from Mod::factors()
//   kCallsScore              Products go through Mod::score() first, each multiplied by `score_scale`
//
// Forward, where references follow the row maxima (softmax.cuh defines x, unit and bias):
//
//   to_scores(x, step, kv_float)
//                            Converts a fragment in place. kv_float: position of the lane's first column, counted as
//                            in Mod::col()
//   is_flipped(), to_score(x, bias, kv_float)
//                            The same for one element, if a lane's rows differ in form. Negate x first if
//                            is_flipped(). The result lacks no term
//   unit(), weight_factor()  Natural units of score per unit of x, positive; and log2(e) times that
//   kKeepsDead               NaN and inf stay in their element. Otherwise dead elements must be set to 0 before, and to
//                            -inf afterwards
//   kIsBiased                x are exponents, bias included, so scores must be bounded: may_be_large() if not
//   kIsLinear                A term grows with the position: LinearExponents. x lacks the step's `ahead`
//
// Backward, where the reference is known, for one element:
//
//   exponent(x, bias, kv_float)
//                            log2(e) score + bias
//   kGradientIsOne           The score is the product times the scale, plus terms independent of it. Otherwise, without
//                            kCallsScore:
//   capped(x), gradient(y)   y: the exponent without bias; the derivative of the score by the product times the scale
//   capped_small(x), are_small(fragment)   A faster capped() if all products are small
//
// The forms: ProductExponents (no score_mod), LinearExponents (score + slope kv_idx), TanhExponents (out tanh(in
// score), in tanh_exponents.cuh), and ScoreExponents for any other mod.
#pragma once

#include "algo/softmax.cuh"
#include "mod/contract.cuh"

namespace attnc {

constexpr float kSmallestNormal = 1.17549435e-38f;
/// Smallest unit of x, so that quotients by it are finite.
constexpr float kSmallestUnit = 5.42101086e-20f; // 2^-64

template <bool CallsScore, bool IsLinear> struct AffineExponents {
  static constexpr bool kCallsScore = CallsScore;
  static constexpr bool kKeepsDead = true;
  static constexpr bool kIsBiased = false;
  static constexpr bool kGradientIsOne = !CallsScore;
  static constexpr bool kIsLinear = IsLinear;

  float score_scale; // of products before score()
  float natural;     // score units per unit of x; negative: the greatest product has the least score
  float factor;      // log2(e) times that
  float slope;       // per position, in powers of two
  float rise;        // of x, per position
  float positive;    // |natural|, at least kSmallestUnit
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
