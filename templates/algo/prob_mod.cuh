// The factors that prob_mod multiplies weights of the softmax by, before these multiply V.
#pragma once

#include "attnc_mod.cuh"

#include "mod/contract.cuh"

namespace attnc {

template <class M> constexpr bool kHasProbMod = requires { M::kHasProbMod; };
/// Whether score() is the weight that multiplies V, in place of the softmax; 0 if it is not live.
template <class M> constexpr bool kIsWeight = requires { M::kIsWeight; };

/// Returns the factor of a weight; 1 in mods without a prob_mod. That of a weight of 0 means nothing, so it is 1.
template <class M>
ATTNC_DEVICE float prob_factor(float weight, const ModArgs& args, const typename M::Head& head,
                               const typename M::Row& row, const typename M::Col& col, Coord at) {
  if constexpr (kHasProbMod<M>)
    if (weight != 0.f) return M::prob_factor(args, head, row, col, at); // SEAM(prob_factor)
  return 1.f;
}

/// Makes weights of a weight_mod's scores: those of dead elements, -inf, become 0.
template <class Scores> ATTNC_DEVICE void scores_to_weights(Scores& x) {
  x.for_each([](float& w, int) { w = w == __int_as_float(0xff800000) ? 0.f : w; });
}

/// Multiplies weights by their factors. Row sums are those of before. Site: algo/apply_mod.cuh.
template <class M, class Scores, class Site>
ATTNC_DEVICE void scale_weights(Scores& x, const ModArgs& args, Site site) {
  if constexpr (kHasProbMod<M>)
    site.at_each(x, [&](float& w, const typename M::Row& row, const typename M::Col& col, Coord at, int r, int, int) {
      w *= prob_factor<M>(w, args, site.head(r), row, col, at);
    });
}

} // namespace attnc
