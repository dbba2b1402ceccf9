// Where a mod meets S^T = K Q^T if nothing is rounded before the products of dV and dK: weights and gradients stay in
// fp32 (algo/transposed_scores.cuh rounds and packs them).
#pragma once

#include "attnc_mod.cuh"

#include "algo/gradients.cuh"
#include "algo/transposed_scores.cuh"

namespace attnc {

/// Turns products into weights. If Wanted, also turns gradients of weights, `d_s`, into gradients of products without
/// the softmax scale. Dead elements become 0.
template <bool Wanted, class M, int Rows>
ATTNC_DEVICE void to_exact_gradients(Fragment<1, Rows>& s, Fragment<1, Rows>& d_s, const ForwardParams& p,
                                     const ModArgs& args, const KvPlace<M>& place, RowTable<M, Rows> table, Step step) {
  const auto bias = table.bias();
  typename RowTable<M, Rows>::template Values<> delta;
  if constexpr (Wanted) table.load_delta(delta);
#pragma unroll
  for (int n = 0; n < Rows / 8; ++n)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int row = s.column(n, e);
      Mod::Row of_row;
      if constexpr (kReadsRows) of_row = table.row(row);
      bool live[2];
      if (kAsksMaskMod && step.flags & kStepMasked) // the bias of rows past the end is -inf
        find_live<kAsksMaskMod>(live, p, args, place, table, step, row, Rows);
      else
        find_live<false>(live, p, args, place, table, step, row, Rows);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const Coord at = place.coord(p, args, table, step, row, r);
        const float product = s.at(r, n, e);
        float x = product;
        if constexpr (Mod::Exponents::kCallsScore)
          x = M::score(args, place.head, of_row, place.col[r], at, x * place.exponents.score_scale); // SEAM(score)
        float y = place.exponents.exponent(x, bias.at(n, e), place.kv_float(r));
        if (!live[r] || bias.at(n, e) == negative_infinity()) y = negative_infinity();
        const float weight = ptx::ex2(y);
        s.at(r, n, e) = weight;
        if constexpr (Wanted)
          d_s.at(r, n, e) = score_gradient<M>(p, args, place.head, of_row, place.col[r], at, product, weight,
                                              d_s.at(r, n, e), delta.at(n, e));
      }
    }
}

} // namespace attnc
