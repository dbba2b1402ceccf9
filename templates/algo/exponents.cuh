// From products q k^T to exponents of two: y = log2(e) score + bias of the row, in the forms that a mod may name as its
// Mod::Exponents (contract.cuh). A kernel calls them all alike:
//
//   Form(scale, factors)     once for a tile of rows. scale: the softmax scale; factors: what Mod::factors() gives
//   kCallsScore              products go through Mod::score() first, each times `score_scale`
//   to_exponents(x, bias, kv_float)
//                            all elements of a fragment, in place. bias: by row of the lane; kv_float: position of the
//                            lane's first column, as Mod::col() counts it
//   kKeepsDead               an element set to dead() before comes out as -inf. If not, dead() is a number that harms no
//                            other element, and dead elements are to be set to -inf afterwards
//
//   exponent(x, bias, kv_float)
//                            the same of one element, for kernels whose fragments are transposed
//   kIsLinear                a term grows with the position: LinearExponents
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

template <bool CallsScore, bool IsLinear> struct AffineExponents {
  static constexpr bool kCallsScore = CallsScore;
  static constexpr bool kKeepsDead = true;
  static constexpr bool kGradientIsOne = !CallsScore;
  static constexpr bool kIsLinear = IsLinear;

  float score_scale; // of products before score()
  float factor;      // of what is left, so that it counts in powers of two
  float slope;       // of positions, in powers of two

  AffineExponents() = default;
  ATTNC_DEVICE AffineExponents(float scale, ScoreFactors factors)
      : score_scale(scale * factors.in), factor(kLog2e * (CallsScore ? factors.out : scale)),
        slope(kLog2e * factors.slope) {
    if (factor == 0.f) factor = kSmallestNormal; // so that a dead element stays one
  }

  ATTNC_DEVICE float exponent(float x, float bias, float kv_float) const {
    return x * factor + (IsLinear ? slope * kv_float + bias : bias);
  }

  /// What the step makes -inf of.
  ATTNC_DEVICE float dead() const { return factor > 0.f ? negative_infinity() : -negative_infinity(); }

  template <class Scores, int Rows>
  ATTNC_DEVICE void to_exponents(Scores& x, const float (&bias)[Rows], float kv_float) const {
    const float shift = IsLinear ? slope * kv_float : 0.f;
    float base[Rows];
#pragma unroll
    for (int r = 0; r < Rows; ++r) base[r] = bias[r] + shift;
#pragma unroll
    for (int m = 0; m < Rows / 2; ++m)
#pragma unroll
      for (int n = 0; n < Scores::kGroups; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int r = 2 * m + e / 2;
          if (IsLinear)
            x.x[m][n][e] = x.x[m][n][e] * factor + (slope * float(8 * n + e % 2) + base[r]);
          else
            x.x[m][n][e] = x.x[m][n][e] * factor + base[r];
        }
  }
};

} // namespace attnc
