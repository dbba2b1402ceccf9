// Online softmax in base 2 over the rows of a fragment (Milakov and Gimelshein, arXiv:1805.02867).
//
//   score = unit x + row_shift,   weight = 2^(factor x + bias),   factor = log2(e) unit,   bias = -factor reference
//
// x is what a form of exponents leaves in the fragment (exponents.cuh). After normalisation, any reference gives the
// same result. The reference moves to the row's maximum only when some x exceeds a threshold, the reference plus a
// slack. So weights stay below 2^slack, far from the limits of fp32 and f16. (With E4M3 the reference is below the
// maximum: WeightsOfE4M3.) The policy is the slack:
//
//   lazy, kSlack   sums and outputs are hardly ever rescaled (FlashAttention-4, arXiv:2603.05451)
//   exact, 0       the reference is the maximum, and the largest weight is 1
//
// Tiles of few columns (kFewColumns of step_walk.cuh) use the exact policy: there the largest weight counts for much,
// and as 1 it is not rounded. Without it, the RMSE of causal attention over 2048 columns rises by 4 %. With it up to
// 1024 columns, rows of 768 to 1024 have 4 % less RMSE and take 10 to 26 % longer. If the row maximum is wanted, rows
// use it as well, or WithMaxima.
//
// The search for an x above the threshold needs only integer maxima, of which Hopper takes three operands at once:
// positive floats compare as their bits do, and negative floats are negative integers. This needs a positive threshold.
// A warp with other rows is careful: it uses float maxima, as exact steps do. So does a warp with a row that is
//
//   unset   no column has been live
//   large   |score| > kLargestScore, where factor x + bias would round by more than weights may. Its x are replaced by
//           (score - reference) / unit, op by op in fp32
//
// WithMaxima, a lane keeps the greatest x of its rows through the same search: an integer maximum is the greatest x if
// that is positive. Negative x count only while no greater one is known. Then the warp searches with float maxima.
// Forms whose x lack a term, or have a bias, compare with the x that is 0 in this step, `zero`, in place of 0.
//
// Until references are known, the fragment holds x, not exponents. Adding a bias earlier would round away a score that
// is far nearer to 0 than the reference, or far larger than it.
#pragma once

#include "ptx/math.cuh"
#include "tile/fragment.cuh"

namespace attnc {

constexpr float kLog2e = 1.44269504088896340736f;
constexpr float kLn2 = 0.69314718055994530942f;

ATTNC_DEVICE float negative_infinity() { return __int_as_float(0xff800000); }

/// Returns x, or NaN if `sum` is NaN because some live score of the row is +inf or NaN. The row's weights, hence its
/// sum, output and lse, become NaN by themselves; a maximum taken with fmaxf does not.
ATTNC_DEVICE float unless_nan(float sum, float x) { return sum == sum ? x : sum; }

/// How weights use the range of the type that they are rounded to, in powers of two: a row's maximum has weight 2^kLift
/// when its reference moves, and no weight exceeds 2^(kLift + kSlack).
struct WeightsFromOne {
  static constexpr float kSlack = 8.f, kLift = 0.f;
  static constexpr bool kKeepsMaxima = false;
};
/// For E4M3, whose normal values are 2^-6 to 448. The lift keeps weights of 2^-10 of the row's maximum normal.
struct WeightsOfE4M3 {
  static constexpr float kSlack = 4.f, kLift = 4.f;
  static constexpr bool kKeepsMaxima = false;
};
/// Either of them where lanes keep the greatest x of their rows. Float: volatile keeps it out of registers.
template <int Rows, class Range, class Float = float> struct WithMaxima : Range {
  static constexpr bool kKeepsMaxima = true;
  Float greatest[Rows]; ///< x that this lane knows of a row, without bias; if kIsBiased plus kTop
  ATTNC_DEVICE WithMaxima() {
#pragma unroll
    for (Float& x : greatest) x = negative_infinity();
  }
};

/// At this size fp32 has 10 bits behind the point.
constexpr float kLargestScore = 8192.f;
template <class Weight> constexpr bool kHasRangeOfF32 = !Same<Weight, F16>::value && !Same<Weight, E4M3>::value;
/// The largest weight may be as small as 2^-kDeepest if weights have the range of fp32. A row whose maximum is that far
/// below 0 keeps a reference of 0, and so a positive threshold.
constexpr float kDeepest = 40.f;

/// What a lane knows of its rows.
template <int Rows, class Range = WeightsFromOne> struct Softmax : Range {
  static constexpr float kSlack = Range::kSlack, kLift = Range::kLift, kTop = kSlack + kLift;

  float threshold[Rows]; ///< -inf: unset. For a large row: the reference as a score
  float sum[Rows];       ///< this lane's part
  int state = kCareful;  ///< a bit per row: it is large; and kCareful
  /// Set if some row of the warp is not plain; the same in all lanes. It is the sign bit, which is quick to test.
  static constexpr int kCareful = 1 << 31;

  ATTNC_DEVICE Softmax() {
#pragma unroll
    for (int r = 0; r < Rows; ++r) threshold[r] = negative_infinity(), sum[r] = 0.f;
  }

  ATTNC_DEVICE bool is_unset(int r) const { return threshold[r] == negative_infinity(); }
  ATTNC_DEVICE bool is_large(int r) const { return state >> r & 1; }
  ATTNC_DEVICE bool is_careful() const { return state < 0; }
  ATTNC_DEVICE void set_careful(bool careful) { state = careful ? state | kCareful : state & ~kCareful; }
  /// Whether x above the threshold are found by comparing integers.
  ATTNC_DEVICE bool is_plain(int r) const { return threshold[r] > 0.f && !is_large(r); }

  /// Returns the bias of a row that is neither unset nor large.
  // NOTE: computed again for each step, which takes one register less per row.
  ATTNC_DEVICE float bias(int r, float factor) const { return kTop - threshold[r] * factor; }
  /// Returns the reference as a score.
  ATTNC_DEVICE float reference(int r, float factor, float row_shift) const {
    return is_large(r) || is_unset(r) ? threshold[r] : row_shift - bias(r, factor) * kLn2;
  }

  /// Whether small_threshold() is valid: the row is not large, and a step whose greatest x is `top` does not make it
  /// large.
  template <class Form> ATTNC_DEVICE bool stays_small(int r, float top, const Form& form, float row_shift) const {
    const float score = top == negative_infinity() ? 0.f : __fadd_rn(__fmul_rn(top, form.unit()), row_shift);
    return !is_large(r) && fabsf(score) <= kLargestScore && fabsf(row_shift) <= kLargestScore && !form.may_be_large();
  }

  /// Returns the threshold of a row behind a step whose greatest x is `top`. Weight: the type that weights are rounded
  /// to.
  // NOTE: without branches, because short rows come here in most steps.
  template <class Weight> ATTNC_DEVICE float small_threshold(int r, float top, float factor, bool exact) const {
    const float slack = kSlack * ptx::rcp(factor);
    float next = top > (exact ? threshold[r] - slack : threshold[r]) ? top + slack : threshold[r];
    if (kHasRangeOfF32<Weight> && !exact && next >= slack - kDeepest / kSlack * slack) next = fmaxf(next, slack);
    return next;
  }
  /// Sets the threshold of a row that is not large. Returns the factor for the sums so far.
  ATTNC_DEVICE float move_to(int r, float next, float factor) {
    const float rescale = is_unset(r) || next == threshold[r] ? 1.f : ptx::ex2((threshold[r] - next) * factor);
    threshold[r] = next;
    sum[r] *= rescale;
    return rescale;
  }

  /// Moves the reference of any row if `top`, its greatest x of a step, requires it. Returns the factor for the sums so
  /// far. Called by all lanes of the quad.
  template <class Weight, class Form>
  ATTNC_DEVICE float move(int r, float top, const Form& form, float row_shift, bool exact) {
    const float factor = form.weight_factor();
    const bool unset = is_unset(r), was_large = is_large(r);
    const float before = reference(r, factor, row_shift), bias_before = bias(r, factor);
    const float score = __fadd_rn(__fmul_rn(top, form.unit()), row_shift);
    if (top == negative_infinity() || score == negative_infinity()) return 1.f; // no column of the step lives
    const bool exceeds = unset || !(score <= before + (exact || was_large ? kLift : kTop) * kLn2);
    const auto is_deep = [&](float bias) {
      return kHasRangeOfF32<Weight> && !exact && bias >= kSlack && bias <= kDeepest;
    };
    if (!exceeds && (was_large || !is_deep(bias_before))) return 1.f;
    if (exceeds && !(fabsf(score) <= kLargestScore && fabsf(row_shift) <= kLargestScore)) {
      threshold[r] = score - kLift * kLn2, state |= 1 << r;
    } else {
      threshold[r] = (!exceeds || is_deep(-top * factor) ? 0.f : top) + __fdividef(kSlack, factor);
      state &= ~(1 << r);
    }
    if (unset) return 1.f;
    const float by =
        was_large || is_large(r) ? (before - reference(r, factor, row_shift)) * kLog2e : bias(r, factor) - bias_before;
    const float rescale = ptx::ex2(by);
    sum[r] *= rescale;
    return rescale;
  }

  /// Finishes a row. Returns 1 / sum, or 0 if no column lives.
  ATTNC_DEVICE float finish(int r) {
    sum[r] = quad_sum(sum[r]);
    if constexpr (Range::kKeepsMaxima) this->greatest[r] = quad_max(this->greatest[r]);
    return sum[r] == 0.f ? 0.f : ptx::rcp(sum[r]);
  }

  /// Returns the natural-log sum of exponentials; -inf if no column lives. Called after finish().
  ATTNC_DEVICE float lse(int r, float factor, float row_shift) const {
    if (sum[r] == 0.f) return negative_infinity();
    return is_large(r) ? ptx::lg2(sum[r]) * kLn2 + threshold[r]
                       : (ptx::lg2(sum[r]) - bias(r, factor)) * kLn2 + row_shift;
  }
  /// Returns the greatest score, if it is kept or all steps were exact; -inf if no column lives. Called after finish().
  template <class Form> ATTNC_DEVICE float max(int r, const Form& form, float row_shift) const {
    const auto score = [&] {
      if constexpr (Range::kKeepsMaxima)
        return __fadd_rn(__fmul_rn(this->greatest[r] - (Form::kIsBiased ? kTop : 0.f), form.unit()), row_shift);
      const float known = reference(r, form.weight_factor(), row_shift);
      return kLift > 0.f ? known + kLift * kLn2 : known; // known + 0 is an instruction
    };
    return sum[r] == 0.f ? negative_infinity() : unless_nan(sum[r], score());
  }
};

/// What turns a step's x into exponents, by row of the lane: factor x + bias. If kIsBiased, x are exponents already.
template <class Form, int Rows> struct StepBias {
  float bias[Rows];
  float ahead[Rows]; ///< to be added to x if kIsLinear: the same for all columns of the lane

  /// For to_scores() of the form.
  template <class Place, class Range> ATTNC_DEVICE StepBias(const Softmax<Rows, Range>& softmax, const Place& place) {
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      bias[r] = softmax.is_careful() ? 0.f : softmax.bias(r, place.form(r).weight_factor());
      ahead[r] = 0.f;
    }
  }
  ATTNC_DEVICE explicit StepBias(const float (&of_rows)[Rows]) {
#pragma unroll
    for (int r = 0; r < Rows; ++r) bias[r] = of_rows[r], ahead[r] = 0.f;
  }

  /// Returns a row's x as (score - `reference`) in its unit, op by op in fp32. It lacks no term and needs no bias: call
  /// drop().
  template <class Place>
  ATTNC_DEVICE float without_reference(float x, int r, const Place& place, float row_shift, float reference) const {
    const float unit = place.form(r).unit();
    return (__fadd_rn(__fmul_rn(x + lacking(r), unit), row_shift) - reference) * ptx::rcp(unit);
  }
  ATTNC_DEVICE void drop(int r) { bias[r] = ahead[r] = 0.f; }

  /// Returns what must be added to x so that score = unit x + row_shift.
  ATTNC_DEVICE float lacking(int r) const { return Form::kIsBiased ? -bias[r] : ahead[r]; }

  /// Called once, before exponent().
  template <class Place> ATTNC_DEVICE void catch_up(const Place& place) {
    if constexpr (Form::kIsLinear) {
#pragma unroll
      for (int r = 0; r < Rows; ++r) bias[r] += ahead[r] * place.form(r).weight_factor();
    }
  }
  template <class Place> ATTNC_DEVICE float exponent(float x, int r, const Place& place) const {
    return Form::kIsBiased ? x : x * place.form(r).weight_factor() + bias[r];
  }
};

/// Whether some x of this lane may lie above the threshold of its row, or with kKeepsMaxima be the greatest one so far
/// and not be in `greatest`. All rows are plain.
template <class Form, int Rows, class Range, class Scores>
ATTNC_DEVICE bool exceeds_threshold(const Scores& x, Softmax<Rows, Range>& softmax, const StepBias<Form, Rows>& step) {
  bool exceeds = false;
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    int even = __float_as_int(x.at(r, 0, 0)), odd = __float_as_int(x.at(r, 0, 1));
#pragma unroll
    for (int n = 1; n < Scores::kGroups; ++n) {
      int& top = n % 2 ? odd : even;
      top = max(max(top, __float_as_int(x.at(r, n, 0))), __float_as_int(x.at(r, n, 1)));
    }
    float threshold = Form::kIsBiased ? softmax.kTop : softmax.threshold[r];
    if constexpr (Form::kIsLinear) {
      threshold -= step.ahead[r];
      exceeds |= !(threshold > 0.f);
    }
    const int top = max(even, odd);
    if constexpr (Range::kKeepsMaxima && (Form::kIsBiased || Form::kIsLinear)) {
      const float zero = Form::kIsLinear ? step.ahead[r] : softmax.is_careful() ? softmax.kTop : softmax.threshold[r];
      const float greatest = fmaxf(softmax.greatest[r], __int_as_float(top) + zero);
      exceeds |= greatest < zero;
      softmax.greatest[r] = greatest;
    } else if constexpr (Range::kKeepsMaxima) {
      const float greatest = fmaxf(softmax.greatest[r], __int_as_float(top));
      exceeds |= unsigned(__float_as_int(greatest)) > unsigned(__float_as_int(threshold)); // it is above, or negative
      softmax.greatest[r] = greatest;
      continue;
    }
    exceeds |= top > __float_as_int(threshold);
  }
  return exceeds;
}

/// Finds the greatest x of each of this lane's rows.
template <class Form, int Rows, class Scores>
ATTNC_DEVICE void find_tops(float (&top)[Rows], const Scores& x, const StepBias<Form, Rows>& step) {
#pragma unroll
  for (int r = 0; r < Rows; ++r) top[r] = x.lane_max(r) + (Form::kIsBiased || Form::kIsLinear ? step.lacking(r) : -0.f);
}

/// Moves the references of a warp to the maxima of a step's x, and makes x and `step` fit them. Returns whether earlier
/// sums must be multiplied by `rescale`, row by row; the same in all lanes. `top`: from find_tops(). Called by all
/// lanes of the warp.
template <class Weight, class Form, int Rows, class Range, class Scores, class Place, class Args>
ATTNC_DEVICE bool move_references(Scores& x, float (&top)[Rows], Softmax<Rows, Range>& softmax,
                                  StepBias<Form, Rows>& step, const Place& place, const Args& args, bool exact,
                                  float (&rescale)[Rows]) {
  bool small = true, plain = true, moves = false;
  float next[Rows];
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    const auto& form = place.form(r);
    top[r] = quad_max(top[r]);
    small &= softmax.stays_small(r, top[r], form, place.row_shift(args, r));
    next[r] = softmax.template small_threshold<Weight>(r, top[r], form.weight_factor(), exact);
    moves |= next[r] != softmax.threshold[r] && !softmax.is_unset(r);
    plain &= next[r] > 0.f;
  }
  if (__all_sync(0xffffffffu, small)) [[likely]] {
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      const float factor = place.form(r).weight_factor(), lacks = step.lacking(r);
      rescale[r] = softmax.move_to(r, next[r], factor);
      step.bias[r] = softmax.is_unset(r) ? 0.f : softmax.bias(r, factor) + lacks * factor;
    }
    if constexpr (Form::kIsBiased) x.for_each([&](float& element, int r) { element += step.bias[r]; });
  } else {
    // NOTE: treats all rows alike, large or not. With a branch for large ones, ptxas moves fragments about in every
    // step.
    float shift[Rows], reference[Rows];
    plain = true, moves = false;
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      const auto& form = place.form(r);
      shift[r] = place.row_shift(args, r);
      rescale[r] = softmax.template move<Weight>(r, top[r], form, shift[r], exact);
      reference[r] = softmax.is_unset(r) ? 0.f : softmax.reference(r, form.weight_factor(), shift[r]);
      moves |= rescale[r] != 1.f;
      plain &= softmax.is_plain(r) && !form.may_be_large();
    }
    const auto convert = [&](float& element, int r) {
      element = step.without_reference(element, r, place, shift[r], reference[r]);
    };
    if constexpr (Form::kIsBiased)
      x.for_each_rarely(convert); // only if the form's scores are not bounded
    else
      x.for_each(convert);
#pragma unroll
    for (int r = 0; r < Rows; ++r) step.drop(r);
  }
  softmax.set_careful(__any_sync(0xffffffffu, !plain));
  return __any_sync(0xffffffffu, moves);
}

/// Keeps factors of sums that cannot be multiplied yet.
template <int Rows> struct Rescaling {
  bool is_due = false;
  float factors[Rows];
  ATTNC_DEVICE void operator()(const float (&of_rows)[Rows]) {
    is_due = true;
#pragma unroll
    for (int r = 0; r < Rows; ++r) factors[r] = of_rows[r];
  }
};

/// Moves references if a step's x need it; see move_references(). Afterwards `step` turns x into exponents. Calls
/// rescale(factors) if earlier sums must be multiplied, row by row; all lanes or none do. `exact`: references are
/// maxima; the same in all lanes. Weight: the type that weights are rounded to. Called by all lanes of the warp.
template <class Weight, class Form, int Rows, class Range, class Scores, class Place, class Args, class Rescale>
ATTNC_DEVICE void follow_maxima(Scores& x, Softmax<Rows, Range>& softmax, StepBias<Form, Rows>& step,
                                const Place& place, const Args& args, bool exact, Rescale&& rescale) {
  constexpr bool kKeepsMaxima = Range::kKeepsMaxima;
  // NOTE: branches go by votes, from which ptxas knows that no warp diverges here; otherwise it serialises wgmma.
  bool follows = __any_sync(0xffffffffu, exceeds_threshold(x, softmax, step) || softmax.is_careful() || exact);
  if (follows) [[unlikely]] {
    float top[Rows];
    find_tops(top, x, step);
    bool exceeds = (!exact && !kKeepsMaxima) || softmax.is_careful();
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      const float slack = softmax.kSlack * ptx::rcp(place.form(r).weight_factor());
      exceeds |= top[r] > softmax.threshold[r] - (exact || !kKeepsMaxima ? slack : 0.f);
    }
    follows = __any_sync(0xffffffffu, exceeds);
    if constexpr (kKeepsMaxima) {
#pragma unroll
      for (int r = 0; r < Rows; ++r) {
        top[r] = quad_max(top[r]); // else lanes below the reference would search again
        // NOTE: x + 0, since the integer of -0 is negative.
        softmax.greatest[r] = fmaxf(softmax.greatest[r], top[r] + (Form::kIsBiased ? softmax.kTop : 0.f));
      }
    }
    float factors[Rows];
    if (follows && move_references<Weight>(x, top, softmax, step, place, args, exact, factors)) rescale(factors);
  }
  if (!follows) step.catch_up(place);
}

/// Turns x into exponents, behind follow_maxima().
// NOTE: forward kernels form all exponents before the first weight. With products in flight, exponents formed with the
// weights delay those behind the wait for O, and take 6 % more cycles at head dim 64; without, they need registers that
// forward_sm80.cu has not. Decode kernels take 10 % fewer cycles with weights_of() (8 queries, head dim 64).
template <class Form, int Rows, class Scores, class Place>
ATTNC_DEVICE void to_exponents(Scores& x, const StepBias<Form, Rows>& step, const Place& place) {
  if constexpr (!Form::kIsBiased)
    x.for_each([&](float& element, int r) { element = step.exponent(element, r, place); });
}

/// Row sums of weights being computed, for `Rows` rows: enough chains that no addition waits for the one before.
template <int Rows> struct WeightSums {
  static constexpr int kChains = Rows == 2 ? 2 : 1;
  float part[Rows][kChains];

  template <class Range> ATTNC_DEVICE explicit WeightSums(const Softmax<Rows, Range>& softmax) {
#pragma unroll
    for (int r = 0; r < Rows; ++r)
#pragma unroll
      for (int chain = 0; chain < kChains; ++chain) part[r][chain] = chain ? 0.f : softmax.sum[r];
  }
  template <class Range> ATTNC_DEVICE void store(Softmax<Rows, Range>& softmax) const {
#pragma unroll
    for (int r = 0; r < Rows; ++r) softmax.sum[r] = kChains == 2 ? part[r][0] + part[r][kChains - 1] : part[r][0];
  }
};

/// Replaces exponents by weights, their powers of two, in the column groups [Begin, End), and adds these to the sums.
template <int Begin, int End, int Rows, class Scores, class Exponent>
ATTNC_DEVICE void to_weights(Scores& x, WeightSums<Rows>& sums, Exponent exponent) {
#pragma unroll
  for (int n = Begin; n < End; ++n)
#pragma unroll
    for (int r = 0; r < Rows; ++r)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        x.at(r, n, e) = ptx::ex2(exponent(x.at(r, n, e), r));
        sums.part[r][e % WeightSums<Rows>::kChains] += x.at(r, n, e);
      }
}
template <int Begin, int End, int Rows, class Scores> ATTNC_DEVICE void to_weights(Scores& y, WeightSums<Rows>& sums) {
  to_weights<Begin, End>(y, sums, [](float exponent, int) { return exponent; });
}
/// Replaces x by weights, and adds these to the sums; behind follow_maxima().
template <class Form, int Rows, class Range, class Scores, class Place>
ATTNC_DEVICE void weights_of(Scores& x, Softmax<Rows, Range>& softmax, const StepBias<Form, Rows>& step,
                             const Place& place) {
  WeightSums<Rows> sums(softmax);
  to_weights<0, Scores::kGroups>(x, sums, [&](float element, int r) { return step.exponent(element, r, place); });
  sums.store(softmax);
}

} // namespace attnc
