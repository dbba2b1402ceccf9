// Backward pass: from scores and gradients of weights to gradients of scores.
//
//   P = exp(mod(scale Q K^T) - lse),  delta = rowsum(dO O) - d_lse,  G = P (dO V^T - delta),
//   dS = scale mod'(scale Q K^T) G
#pragma once

#include "attnc_mod.cuh"

#include "algo/exponents.cuh"
#include "algo/output_gradients.cuh"
#include "algo/sequence.cuh"
#include "params.cuh"

namespace attnc {

/// Returns the index of a row of Q in arrays with one number per row (lse, delta): see row_of_head().
ATTNC_DEVICE long long row_of_all(const ForwardParams& p, int b, int h, int q_idx) {
  return row_of_head<Mod>(p, b, h) + q_idx;
}

/// Largest lse by which weights are normalised. Half of its last place is an error no larger than a rounding to the
/// element type, or 2^-12.
constexpr float kLargestLse = Same<Element, Bf16>::value ? 16384.f : 4096.f;
/// Whether the row's weights also need its sum: backward_large.cu.
ATTNC_DEVICE bool is_large(float lse) { return fabsf(lse) > kLargestLse && fabsf(lse) < __int_as_float(0x7f800000); }

/// Returns the bias of y = log2(e) score + bias, which makes 2^y the weight: -lse in units of log2, without the term
/// that apply_mod() leaves out of the scores. -inf for rows without live columns, whose weights are 0, and for rows
/// whose gradients another kernel computes.
ATTNC_DEVICE float weight_bias(float lse, float row_shift) {
  return lse == negative_infinity() || is_large(lse) ? negative_infinity() : (row_shift - lse) * kLog2e;
}

/// Returns the gradient of q k^T, without the scale, from that of the weight. Dead elements return 0, whatever mod' and
/// V are there.
template <class M>
ATTNC_DEVICE float score_gradient(const ForwardParams& p, const ModArgs& args, const Mod::Head& head,
                                  const Mod::Row& row, const Mod::Col& col, Coord at, float product, float weight,
                                  float d_weight, float delta) {
  if constexpr (kHasOutputGradients<M>) d_weight += output_gradient<M>(args, head, row, col, at, weight);
  float g = weight * (d_weight - delta);
  if constexpr (!Mod::kKeepsGradient) g = M::d_score(args, head, row, col, at, product * p.scale, g); // SEAM(d_score)
  return weight == 0.f ? 0.f : g;
}

} // namespace attnc
