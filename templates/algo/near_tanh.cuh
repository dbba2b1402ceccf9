// Soft caps where scores are small against the cap: out tanh(in x) as an odd polynomial in x.
//
// tanh costs a reciprocal and a dozen multiply-adds, or, in hardware, as much of the unit for special functions as the
// softmax's exponential. But scores mostly lie well within their cap, and for |in x| <= 0.6
//
//   tanh(u) = u (c0 + c1 u^2 + c2 u^4 + ...)
//
// to a relative error of 7.3e-8 with five coefficients and 6.3e-5 with three, minimax fits. With the factors inside the
// coefficients the bias of the softmax is the last addend, so that a score costs three or five instructions more than one
// without a cap, and one to see that it is near. What lies further out takes the mod's own score(); who calls decides for
// a warp's part of a tile.
//
// Of x = -inf, a dead column, the polynomial makes -inf: the last coefficient is positive.
#pragma once

#include "mod/contract.cuh"

namespace attnc {

constexpr float kNearTanhLimit = 0.6f; // of |u|

/// The fits: accurate, and for tanh_approx, of which 2^-11 is expected.
template <bool Accurate> constexpr int kNearTanhTerms = Accurate ? 5 : 3;
template <bool Accurate> ATTNC_DEVICE constexpr float near_tanh_coefficient(int i) {
  if (Accurate)
    return i == 0 ? 0.999999927f : i == 1 ? -0.3333231f : i == 2 ? 0.133101737f : i == 3 ? -0.0521014801f : 0.0154754275f;
  return i == 0 ? 0.999936856f : i == 1 ? -0.330128059f : 0.108397971f;
}

/// out tanh(in x) for |x| <= limit.
template <bool Accurate> struct NearTanh {
  static constexpr int kTerms = kNearTanhTerms<Accurate>;
  float limit; // negative: for no x
  float coefficients[kTerms];

  NearTanh() = default;
  ATTNC_DEVICE NearTanh(float in, float out) {
    float factor = out * in;
#pragma unroll
    for (int i = 0; i < kTerms; ++i) {
      coefficients[i] = factor * near_tanh_coefficient<Accurate>(i);
      factor *= in * in;
    }
    constexpr float kSmallestNormal = 1.17549435e-38f;
    // NOTE: no exact division; it calls a function, and around that ptxas gives up on products that are under way.
    limit = coefficients[kTerms - 1] >= kSmallestNormal ? __fdividef(kNearTanhLimit, in) : -1.f;
  }

  ATTNC_DEVICE float plus(float bias, float x) const {
    const float square = x * x;
    float sum = coefficients[kTerms - 1];
#pragma unroll
    for (int i = kTerms - 2; i >= 0; --i) sum = sum * square + coefficients[i];
    return x * sum + bias;
  }
};

} // namespace attnc
