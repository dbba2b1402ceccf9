// Partial attention over parts of KV, and its merge. Weights refer to the greatest reference of all parts, and sums
// have a fixed order, so that equal parts give equal bits.
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

/// What a part knows of a row, apart from its output, the sum of V weighted by exp(score - reference).
///
/// Parts are merged in two passes. First none(), then see() for all parts, in any order. Then add() for all parts in a
/// fixed order; it returns the factor of the part's output. A part is four floats; the last two pad it to one store.
struct RowState {
  float reference; ///< natural units; -inf: no column of the part lives
  float sum;       ///< of weights

  ATTNC_DEVICE static RowState none() { return {negative_infinity(), 0.f}; }

  ATTNC_DEVICE void see(const float (&part)[4]) { reference = fmaxf(reference, part[0]); }
  /// Combines what the lanes of a warp have seen.
  ATTNC_DEVICE void see_lanes() { reference = warp_max(reference); }
  ATTNC_DEVICE float add(const float (&part)[4]) {
    // For infinite scores this is NaN, as the row then is.
    const float factor = part[1] == 0.f ? 0.f : ptx::ex2((part[0] - reference) * kLog2e);
    sum += part[1] * factor;
    return factor;
  }
  ATTNC_DEVICE void store(float (&part)[4]) const { part[0] = reference, part[1] = sum, part[2] = part[3] = 0.f; }
  ATTNC_DEVICE void add_lanes() { sum = warp_sum(sum); }

  ATTNC_DEVICE float normalise() const { return sum == 0.f ? 0.f : ptx::rcp(sum); }
  /// Returns -inf if no column lives.
  ATTNC_DEVICE float lse() const { return sum == 0.f ? negative_infinity() : ptx::lg2(sum) * kLn2 + reference; }
  /// Returns the greatest reference of a part, which is the greatest score if all steps were exact.
  ATTNC_DEVICE float max() const { return unless_nan(sum, reference); }
};

/// Returns the state of a lane's row. Called after Softmax::finish().
template <int Rows> ATTNC_DEVICE RowState state_of(const Softmax<Rows>& softmax, int r, float factor, float row_shift) {
  return {softmax.sum[r] == 0.f ? negative_infinity() : softmax.reference(r, factor, row_shift), softmax.sum[r]};
}

} // namespace attnc
