// Online softmax in base 2 over the rows of a fragment (Milakov and Gimelshein, arXiv:1805.02867).
//
// Weights are 2^y, where y is a score in units of log2 plus the bias of its row: minus a reference. Any reference gives
// the same result after normalisation. It follows the row's maximum only when some y exceeds a slack, so that weights
// stay below 2^slack, far from the limits of f32 and f16. The policy is the slack:
//
//   lazy, kSlack   sums and outputs are hardly ever rescaled (FlashAttention-4, arXiv:2603.05451)
//   exact, 0       the reference is the maximum, and the largest weight is 1
//
// Rows of few columns take the exact one: there the largest weight counts for much, and as 1 it does not round. Without
// that, the RMSE of causal attention over 2048 columns rises by 4 %; with it in the first steps of every row, a window of
// 1024 is slower by some 6 %.
//
// Looking for such a y takes no float comparison but the maximum of integers, of which Hopper takes three at once: positive
// floats compare as their bits do, and a negative float is a negative integer.
#pragma once

#include "ptx/math.cuh"
#include "tile/fragment.cuh"

namespace attnc {

constexpr float kLog2e = 1.44269504088896340736f;
constexpr float kLn2 = 0.69314718055994530942f;

ATTNC_DEVICE float negative_infinity() { return __int_as_float(0xff800000); }

/// x, or NaN if `sum` is: what becomes of a row in which some live score is +inf or NaN. Its weights, so its sum, output
/// and lse are NaN by themselves; a maximum taken with fmaxf is not.
ATTNC_DEVICE float unless_nan(float sum, float x) { return sum == sum ? x : sum; }

constexpr float kSlack = 8.f;

/// What a lane knows of one of its rows, beside its part of the sum. `TracksMax`: the row maximum is wanted in the end; it
/// takes a register more.
template <bool TracksMax> struct RowReference;

/// Instead of the greatest y of a row that has not seen a live column, as bits: a NaN, greater than all others.
constexpr int kUnset = 0x7fffffff;

template <> struct RowReference<true> {
  float bias = 0.f;
  int top = kUnset; // greatest y of this lane, as bits, if positive, or kUnset

  ATTNC_DEVICE int greatest() const { return top; }
  ATTNC_DEVICE void see(int greatest) { top = greatest; }
  ATTNC_DEVICE void fall_by(float fall, bool dead) {
    bias -= fall;
    if (!dead) top = 0;
  }
};

/// The bias is minus zero until the row has seen a live column.
template <> struct RowReference<false> {
  float bias = -0.f;

  ATTNC_DEVICE int greatest() const { return __float_as_uint(bias) == 0x80000000u ? kUnset : 0; }
  ATTNC_DEVICE void see(int) {}
  ATTNC_DEVICE void fall_by(float fall, bool dead) {
    if (!dead) bias = bias - fall + 0.f; // not minus zero
  }
};

template <bool TracksMax = true> struct SoftmaxRow : RowReference<TracksMax> {
  using Reference = RowReference<TracksMax>;
  float sum = 0.f; // this lane's part

  /// Moves the reference to the row's maximum, `y_max` being this lane's greatest y and `greatest` what it has seen so
  /// far. All lanes of the warp. Returns by how much y falls, and sets the factor for what was summed so far.
  ATTNC_DEVICE float move(float y_max, int greatest, float& rescale) {
    y_max = quad_max(fmaxf(y_max, __int_as_float(greatest))); // an unset one is not a number, and ignored
    const bool unset = greatest == kUnset, dead = y_max == negative_infinity();
    const float fall = unset ? dead ? 0.f : y_max : fmaxf(y_max, 0.f);
    rescale = unset ? 1.f : ptx::ex2(-fall);
    sum *= rescale;
    Reference::fall_by(fall, dead);
    return fall;
  }

  /// Ends the row: 1 / sum, or 0 if no column lives.
  ATTNC_DEVICE float finish() {
    sum = quad_sum(sum);
    return sum == 0.f ? 0.f : ptx::rcp(sum);
  }

  /// Natural-log sum of exponentials; -inf if no column lives. After finish().
  ATTNC_DEVICE float lse() const {
    return sum == 0.f ? negative_infinity() : (ptx::lg2(sum) - Reference::bias) * kLn2;
  }
  /// The greatest score in natural units; -inf if no column lives. All lanes of the quad, after finish().
  ATTNC_DEVICE float max() const {
    static_assert(TracksMax);
    const int greatest = Reference::greatest();
    const float above = quad_max(fmaxf(__int_as_float(greatest), 0.f));
    return unless_nan(sum, greatest == kUnset ? negative_infinity() : (above - Reference::bias) * kLn2);
  }
};

/// Turns exponents y into ones that are fit for weights. True, for the whole warp: references have moved, and what was
/// summed so far must be multiplied by `rescale`, row by row. `few`: the rows have few columns. All lanes of the warp.
template <bool TracksMax, int Rows, class Scores>
ATTNC_DEVICE bool follow_maxima(Scores& y, SoftmaxRow<TracksMax> (&row)[Rows], float (&rescale)[Rows], bool few) {
  const int slack = __float_as_int(few ? 0.f : kSlack);
  int greatest[Rows];
  bool exceeds = false;
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    int even = row[r].greatest(), odd = __float_as_int(y.at(r, 0, 0));
#pragma unroll
    for (int n = 0; n < Scores::kGroups; ++n) {
      int& top = n % 2 ? odd : even;
      top = max(max(top, __float_as_int(y.at(r, n, 0))), __float_as_int(y.at(r, n, 1)));
    }
    greatest[r] = max(even, odd);
    row[r].see(greatest[r]);
    exceeds |= greatest[r] > slack;
  }
  const bool move = __any_sync(0xffffffffu, exceeds);
  if (move) [[unlikely]] {
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      const float fall = row[r].move(y.lane_max(r), greatest[r], rescale[r]);
#pragma unroll
      for (int n = 0; n < Scores::kGroups; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) y.at(r, n, e) -= fall;
    }
  }
  return move;
}

/// Row sums of weights under way, of `Rows` rows: enough of them at a time that no addition waits for the one before.
template <int Rows> struct WeightSums {
  static constexpr int kChains = Rows == 2 ? 2 : 1;
  float part[Rows][kChains];

  template <bool TracksMax> ATTNC_DEVICE explicit WeightSums(const SoftmaxRow<TracksMax> (&row)[Rows]) {
#pragma unroll
    for (int r = 0; r < Rows; ++r)
#pragma unroll
      for (int chain = 0; chain < kChains; ++chain) part[r][chain] = chain ? 0.f : row[r].sum;
  }
  template <bool TracksMax> ATTNC_DEVICE void store(SoftmaxRow<TracksMax> (&row)[Rows]) const {
#pragma unroll
    for (int r = 0; r < Rows; ++r) row[r].sum = kChains == 2 ? part[r][0] + part[r][kChains - 1] : part[r][0];
  }
};

/// Weights 2^y in place for the column groups [Begin, End), summed up.
template <int Begin, int End, int Rows, class Scores>
ATTNC_DEVICE void to_weights(Scores& y, WeightSums<Rows>& sums) {
#pragma unroll
  for (int n = Begin; n < End; ++n)
#pragma unroll
    for (int r = 0; r < Rows; ++r)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        y.at(r, n, e) = ptx::ex2(y.at(r, n, e));
        sums.part[r][e % WeightSums<Rows>::kChains] += y.at(r, n, e);
      }
}

} // namespace attnc
