// TanhExponents, the form of soft caps: y = out tanh(in x) + bias, a power of two for the softmax. exponents.cuh
// defines the interface.
//
// Small scores, |in x| <= 0.6, use an odd polynomial with the factors folded into its coefficients,
//
//   tanh(u) = u (c0 + c1 u^2 + c2 u^4 + ...)
//
// a minimax fit with a relative error of 7.3e-8 with five coefficients, and of 6.3e-5 with three.
//
// Other scores use tanh(u) = 1 - 2 / (1 + e^2u). A softmax only needs a small absolute error of y, so 1 - 2 r loses
// nothing that counts: the error is at most 6e-7 of the cap, 1e-7 RMS. Four scores share one reciprocal, since 1/a is b
// / (a b); this takes less of the special function unit, which is what binds here. A NaN then spreads over the four, so
// they must be live scores of one row, which is NaN anyway. For mods that ask for it, the hardware's tanh is one
// instruction.
//
// A warp uses the polynomial if all of its scores are small.
#pragma once

#include "algo/exponents.cuh"
#include "mod/ops.cuh"
#include "ptx/math.cuh"

namespace attnc {

/// The fits for |u| <= limits[Terms - 1]; limits[n] is how far the first n + 1 coefficients suffice.
template <bool Accurate> struct TanhFit;
template <> struct TanhFit<true> {
  static constexpr int kTerms = 5;
  ATTNC_DEVICE static constexpr float coefficient(int i) {
    constexpr float x[] = {0.999999927f, -0.3333231f, 0.133101737f, -0.0521014801f, 0.0154754275f};
    return x[i];
  }
  ATTNC_DEVICE static constexpr float limit(int i) {
    constexpr float x[] = {4e-4f, 0.025f, 0.1f, 0.2f, 0.6f};
    return x[i];
  }
};
template <> struct TanhFit<false> {
  static constexpr int kTerms = 3;
  ATTNC_DEVICE static constexpr float coefficient(int i) {
    constexpr float x[] = {0.999936856f, -0.330128059f, 0.108397971f};
    return x[i];
  }
  ATTNC_DEVICE static constexpr float limit(int i) {
    constexpr float x[] = {0.01f, 0.15f, 0.6f};
    return x[i];
  }
};

/// Accurate: the accurate tanh; otherwise the hardware's.
template <bool Accurate> struct TanhExponents {
  static constexpr bool kCallsScore = false;
  static constexpr bool kKeepsDead = false;
  static constexpr bool kGradientIsOne = false;
  static constexpr bool kIsLinear = false;
  static constexpr bool kIsBiased = true;
  using Fit = TanhFit<Accurate>;
  float in, out;
  float small; // scores up to this size are small; negative: none are
  float coefficients[Fit::kTerms];
  float slope, bend; // of the derivative

  TanhExponents() = default;
  ATTNC_DEVICE TanhExponents(float scale, ScoreFactors factors)
      : in(scale * factors.in), out(kLog2e * factors.out), slope(factors.out * factors.in) {
    if (out == 0.f) out = kSmallestNormal;
    const float inverse = __fdividef(1.f, out);
    bend = slope * inverse * inverse;
    float factor = out * in, limit = -1.f;
    bool normal = true;
#pragma unroll
    for (int i = 0; i < Fit::kTerms; ++i) {
      coefficients[i] = factor * Fit::coefficient(i);
      normal = normal && fabsf(coefficients[i]) >= kSmallestNormal; // with a huge cap the last ones are subnormal
      if (normal) limit = Fit::limit(i);
      factor *= in * in;
    }
    // NOTE: no exact division: it calls a function, around which ptxas gives up on wgmma in flight.
    small = __fdividef(limit, fabsf(in));
  }

  ATTNC_DEVICE float capped(float x) const {
    if (!Accurate) return out * mod::tanh_approx_of(in * x);
    return -2.f * out * ptx::rcp(1.f + ptx::ex2(2.f * kLog2e * in * x)) + out;
  }
  ATTNC_DEVICE float exponent(float x, float bias, float) const { return capped(x) + bias; }
  /// The same for small products, without special functions; and whether all products of a warp are small.
  ATTNC_DEVICE float capped_small(float x) const { return of_small(x, 0.f); }
  template <class Scores> ATTNC_DEVICE bool are_small(const Scores& x) const {
    return __all_sync(0xffffffffu, largest(x) <= small);
  }

  /// tanh' = 1 - tanh^2, and y = out tanh.
  ATTNC_DEVICE float gradient(float y) const { return slope - y * y * bend; }

  ATTNC_DEVICE static constexpr float unit() { return kLn2; }
  ATTNC_DEVICE static constexpr float weight_factor() { return 1.f; }
  /// With a cap this large, scores may be large.
  ATTNC_DEVICE bool may_be_large() const { return !(out <= kLargestScore); }

  ATTNC_DEVICE static constexpr bool is_flipped() { return false; }
  ATTNC_DEVICE float to_score(float x, float bias, float) const { return capped(x) + bias; }
  template <class Scores, int Rows>
  ATTNC_DEVICE void to_scores(Scores& x, const StepBias<TanhExponents, Rows>& step, float) const {
    const auto& bias = step.bias;
    if (are_small(x)) {
      x.for_each([&](float& element, int r) { element = of_small(element, bias[r]); });
      return;
    }
#pragma unroll
    for (int n = 0; n < Scores::kGroups; n += 2)
#pragma unroll
      for (int r = 0; r < Rows; ++r)
        of_any(x.at(r, n, 0), x.at(r, n, 1), x.at(r, n + 1, 0), x.at(r, n + 1, 1), bias[r]);
  }

private:
  /// Returns the size of this lane's largest element.
  template <class Scores> ATTNC_DEVICE static float largest(const Scores& x) {
    float top[4] = {};
#pragma unroll
    for (int m = 0; m < Scores::kRowGroups; ++m)
#pragma unroll
      for (const auto& group : x.x[m])
#pragma unroll
        for (int e = 0; e < 4; ++e) top[e] = fmaxf(top[e], fabsf(group[e]));
    return fmaxf(fmaxf(top[0], top[1]), fmaxf(top[2], top[3]));
  }

  ATTNC_DEVICE float of_small(float x, float bias) const {
    const float square = x * x;
    float sum = coefficients[Fit::kTerms - 1];
#pragma unroll
    for (int i = Fit::kTerms - 2; i >= 0; --i) sum = sum * square + coefficients[i];
    return x * sum + bias;
  }

  /// Returns 1 + e^2u of an element. It has a bound, so that the product of four is finite: from there on tanh is 1.
  ATTNC_DEVICE float denominator(float x) const { return 1.f + ptx::ex2(ptx::min_nan(2.f * kLog2e * in * x, 30.f)); }

  /// Replaces four elements of one row.
  ATTNC_DEVICE void of_any(float& x0, float& x1, float& x2, float& x3, float bias) const {
    if constexpr (Accurate) {
      const float a = denominator(x0), b = denominator(x1), c = denominator(x2), d = denominator(x3);
      const float ab = a * b, cd = c * d, r = -2.f * out * ptx::rcp(ab * cd), top = bias + out;
      const float over_ab = r * cd, over_cd = r * ab;
      x0 = over_ab * b + top;
      x1 = over_ab * a + top;
      x2 = over_cd * d + top;
      x3 = over_cd * c + top;
    } else {
      x0 = out * mod::tanh_approx_of(in * x0) + bias;
      x1 = out * mod::tanh_approx_of(in * x1) + bias;
      x2 = out * mod::tanh_approx_of(in * x2) + bias;
      x3 = out * mod::tanh_approx_of(in * x3) + bias;
    }
  }
};

} // namespace attnc
