// Rows of attention over parts of KV, and their sum: exp of scores by the greatest reference of all parts, then sums in one
// order, so that equal parts give equal bits.
#pragma once

#include "algo/softmax.cuh"

namespace attnc {

ATTNC_DEVICE float warp_max(float x) {
#pragma unroll
  for (int distance = 16; distance; distance /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
  return x;
}
ATTNC_DEVICE float warp_sum(float x) {
#pragma unroll
  for (int distance = 16; distance; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
  return x;
}

/// What a part knows of a row beside its output, which is a sum of V by weights 2^(y - reference). In units of log2.
///
/// Parts are put together in two rounds: none(), see() of all of them, in any order; then add() of all in one order, which
/// says by what the part's output counts. Parts are four floats, the members in their order.
struct RowState {
  float reference; ///< -inf: no column of the part lives
  float sum;       ///< of weights
  float top;       ///< the greatest y, if that is wanted
  float shift;     ///< natural units: what is added to all scores of the row, the same in all parts

  ATTNC_DEVICE static RowState none() { return {negative_infinity(), 0.f, negative_infinity(), 0.f}; }

  ATTNC_DEVICE void see(const float (&part)[4]) {
    reference = fmaxf(reference, part[0]);
    top = fmaxf(top, part[2]);
    shift = part[3];
  }
  /// Makes what the lanes of a warp have seen one. Lane 0 has seen a part.
  ATTNC_DEVICE void see_lanes() {
    reference = warp_max(reference);
    top = warp_max(top);
    shift = __shfl_sync(0xffffffffu, shift, 0);
  }
  ATTNC_DEVICE float add(const float (&part)[4]) {
    // Of infinite scores: not a number, as the row then is.
    const float factor = part[1] == 0.f ? 0.f : ptx::ex2(part[0] - reference);
    sum += part[1] * factor;
    return factor;
  }
  ATTNC_DEVICE void store(float (&part)[4]) const {
    part[0] = reference, part[1] = sum, part[2] = top, part[3] = shift;
  }
  ATTNC_DEVICE void add_lanes() { sum = warp_sum(sum); }

  ATTNC_DEVICE float normalise() const { return sum == 0.f ? 0.f : ptx::rcp(sum); }
  /// Natural units; -inf if no column lives.
  ATTNC_DEVICE float lse() const {
    return sum == 0.f ? negative_infinity() : (ptx::lg2(sum) + reference) * kLn2 + shift;
  }
  ATTNC_DEVICE float max() const { return unless_nan(sum, top * kLn2 + shift); }
};

/// Of a lane's row, after SoftmaxRow::finish().
template <bool TracksMax> ATTNC_DEVICE RowState state_of(const SoftmaxRow<TracksMax>& row, float shift) {
  RowState state = {row.sum == 0.f ? negative_infinity() : -row.bias, row.sum, negative_infinity(), shift};
  if constexpr (TracksMax) {
    const int greatest = row.greatest();
    const float above = quad_max(fmaxf(__int_as_float(greatest), 0.f)); // the unset one is not a number, and ignored
    if (greatest != kUnset) state.top = above - row.bias;
  }
  return state;
}

} // namespace attnc
