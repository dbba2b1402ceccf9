// Rows of attention over parts of KV, and their sum. Parts are folded in the order of the calls, so that equal parts in equal
// order give equal bits.
#pragma once

#include "algo/softmax.cuh"

namespace attnc {

/// What a part knows of a row beside its output, which is a sum of V by weights 2^(y - reference). In units of log2.
struct RowState {
  float reference; ///< -inf: no column of the part lives
  float sum;       ///< of weights
  float top;       ///< the greatest y, if that is wanted
  float shift;     ///< natural units: what is added to all scores of the row, the same in all parts
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

/// Four neighbours of a row of the output, and the row's state, of the parts folded in so far.
struct MergedRow {
  RowState state = {__int_as_float(0xff800000), 0.f, __int_as_float(0xff800000), 0.f};
  float out[4] = {};

  ATTNC_DEVICE void fold(const RowState& part, const float (&x)[4]) {
    state.shift = part.shift;
    state.top = fmaxf(state.top, part.top);
    if (part.sum == 0.f) return;
    const float reference = fmaxf(state.reference, part.reference);
    const float old = state.sum == 0.f ? 0.f : ptx::ex2(state.reference - reference);
    const float factor = ptx::ex2(part.reference - reference); // of infinite scores: not a number, as the row then is
    state.reference = reference;
    state.sum = state.sum * old + part.sum * factor;
#pragma unroll
    for (int i = 0; i < 4; ++i) out[i] = out[i] * old + x[i] * factor;
  }

  ATTNC_DEVICE float normalise() const { return state.sum == 0.f ? 0.f : ptx::rcp(state.sum); }
  /// Natural units; -inf if no column lives.
  ATTNC_DEVICE float lse() const {
    return state.sum == 0.f ? negative_infinity() : (ptx::lg2(state.sum) + state.reference) * kLn2 + state.shift;
  }
  ATTNC_DEVICE float max() const { return unless_nan(state.sum, state.top * kLn2 + state.shift); }
};

} // namespace attnc
