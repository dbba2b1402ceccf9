// The sink of a row: one more term of the softmax's denominator, whose value is 0. It acts when a row is complete.
//
//   lse = log(exp(sink) + sum exp(score)),   out = sum exp(score - lse) v
#pragma once

#include "attnc_mod.cuh"

#include "algo/softmax.cuh"
#include "mod/contract.cuh"

namespace attnc {

template <class M> constexpr bool kHasSink = requires { M::kHasSink; };

/// Returns the sink of a row; -inf in mods without a sink_mod. `q`: its position, or on grids its Token.
template <class M, class Query> ATTNC_DEVICE float sink_of(const ModArgs& args, int b, int h, Query q) {
  if constexpr (kHasSink<M>)
    return M::sink(args, b, h, q); // SEAM(sink)
  else
    return negative_infinity();
}

/// Returns how the sink of a row moves: its tangent; 0 in mods without.
template <class M>
ATTNC_DEVICE float t_sink_of(const ModArgs& args, const typename M::Head& head, const typename M::Row& row, Coord at) {
  if constexpr (kHasSink<M>)
    return M::t_sink(args, head, row, at); // SEAM(t_sink)
  else
    return 0.f;
}

/// What a row is divided by.
struct Denominator {
  float normalise; ///< factor of O; 0 if it has no term
  float lse;       ///< -inf if it has no term

  /// Adds a sink to the `sum` of weights exp(score - reference), whose reference is -inf if it has no term. Both terms
  /// refer to the greater one, so that neither overflows.
  ATTNC_DEVICE static Denominator with_sink(float sum, float reference, float sink) {
    if (sum == 0.f && sink == negative_infinity()) return {0.f, negative_infinity()};
    const float greater = fmaxf(reference, sink);
    const float of_scores = sum == 0.f ? 0.f : ptx::ex2((reference - greater) * kLog2e);
    const float total = sum * of_scores + ptx::ex2((sink - greater) * kLog2e);
    return {of_scores * ptx::rcp(total), ptx::lg2(total) * kLn2 + greater};
  }
};

} // namespace attnc
