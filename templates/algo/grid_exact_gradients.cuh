// Where a mod meets S^T = K Q^T of boxes on a grid if nothing is rounded before the products of dV and dK: as
// algo/exact_gradients.cuh for rows.
#pragma once

#include "attnc_mod.cuh"

#include "algo/gradients.cuh"
#include "algo/grid_transposed_scores.cuh"

namespace attnc {

/// Turns products into weights, and gradients of weights, `d_s`, into gradients of products without the softmax scale.
/// Dead elements become 0.
template <class M, class Box, int Rows>
ATTNC_DEVICE void to_exact_gradients(Fragment<1, Rows>& s, Fragment<1, Rows>& d_s, const ForwardParams& p,
                                     const ModArgs& args, const KeyPlace<M, Box>& place,
                                     SeenTable<M, Box, Rows> table) {
  const auto bias = table.bias();
  typename SeenTable<M, Box, Rows>::template Values<> delta;
  table.load_delta(delta);
  unsigned needed[2]; // KeyBits of the keys
#pragma unroll
  for (int r = 0; r < 2; ++r) needed[r] = KeyBits<Box>::of(place.token(r));
#pragma unroll
  for (int n = 0; n < Rows / 8; ++n) {
    int seen[2];
    table.load_seen(seen, n);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int row = s.column(n, e);
      Mod::Row of_row;
      if constexpr (kReadsQueries) of_row = table.row(row);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        bool live = !(needed[r] & ~unsigned(seen[e])); // the bias of rows that see nothing is -inf
        if constexpr (kMayAsk) live = live && place.is_kept(args, table, row, r);
        const Coord at = {place.b, place.h, table.index(row), place.index[r]};
        const float product = s.at(r, n, e);
        float x = product;
        if constexpr (Mod::Exponents::kCallsScore)
          x = M::score(args, place.head, of_row, place.col[r], at, x * place.exponents.score_scale); // SEAM(score)
        float y = place.exponents.exponent(x, bias.at(n, e), place.kv_float(r));
        if (!live || bias.at(n, e) == negative_infinity()) y = negative_infinity();
        const float weight = ptx::ex2(y);
        s.at(r, n, e) = weight;
        d_s.at(r, n, e) = score_gradient<M>(p, args, place.head, of_row, place.col[r], at, product, weight,
                                            d_s.at(r, n, e), delta.at(n, e));
      }
    }
  }
}

} // namespace attnc
