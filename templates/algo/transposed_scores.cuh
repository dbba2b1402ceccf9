// Where a mod meets transposed fragments, those of S^T = K Q^T: turns products into weights and rates, and gradients of
// weights into gradients of products. For kernels whose tiles own KV columns and walk Q (backward).
//
//   P = 2^y, y = log2(e) (mod(s) - lse);  R = P mod'(s);  dS = R (dP - delta)
//
// A lane holds 2 RowGroups KV columns (rows of the fragment), and two of each group of 8 rows of Q. What depends on the
// row of Q is computed once per step for all lanes, in shared memory: RowTable.
#pragma once

#include "attnc_mod.cuh"

#include "algo/drops.cuh"
#include "algo/exponents.cuh"
#include "algo/gradients.cuh"
#include "algo/output_gradients.cuh"
#include "algo/sequence.cuh"
#include "algo/step_walk.cuh"
#include "algo/tanh_exponents.cuh"
#include "params.cuh"
#include "ptx/math.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/fragment.cuh"
#include "tile/shared_memory.cuh"

namespace attnc {

/// Whether score(), d_score(), mask() or prob_gradient() read a Row for each element.
constexpr bool kReadsRows =
    Mod::Exponents::kCallsScore || (Mod::kHasMaskMod && !Mod::kRowsAreIntervals) || kHasOutputGradients<Mod>;
/// Whether the bounds of their row decide which elements are masked.
constexpr bool kReadsIntervals = Mod::kHasMaskMod && Mod::kRowsAreIntervals;

/// Flags of steps in which weights of dead elements must be dropped. For rows past the end, a bias of -inf and products
/// of 0 suffice, unless the mod is called for each score: it may turn 0 into inf or NaN.
constexpr int kStepHasDead = kStepMasked | (Mod::Exponents::kCallsScore ? kStepTail : 0);

/// What all lanes share of the rows of a step, whatever rows are: consecutive arrays of `Rows` floats in shared memory.
///   bias       see weight_bias(); -inf for rows past the end and rows without live columns
///   delta      see gradients.cuh; 0 where bias is -inf
template <int Rows> struct RowValues {
  static constexpr int kDelta = 4 * Rows, kEnd = 8 * Rows;

  unsigned base; ///< shared address, a multiple of 16

  /// What a lane needs of an array of floats, for its rows in groups [Begin, End).
  // NOTE: load it well before its use: loads are slow while products read shared memory all the time.
  template <int Begin = 0, int End = Rows / 8> struct Values {
    float2 of[End - Begin];
    ATTNC_DEVICE float at(int n, int e) const { return e ? of[n - Begin].y : of[n - Begin].x; }
  };
  /// The same, but each value is loaded when it is used: for kernels without registers to spare.
  struct LateValues {
    unsigned array;
    ATTNC_DEVICE float at(int n, int e) const {
      return ptx::ld_shared_float(array + 4 * Fragment<1, Rows>::column(n, e));
    }
  };
  template <int Begin = 0, int End = Rows / 8, bool Late = false> ATTNC_DEVICE auto bias() const {
    if constexpr (Late)
      return LateValues{base};
    else
      return load<Begin, End>(base);
  }
  ATTNC_DEVICE void load_delta(Values<>& values) const { values = load<0, Rows / 8>(base + kDelta); }
  ATTNC_DEVICE void load_delta(LateValues& values) const { values = {base + kDelta}; }
  template <int Begin, int End> ATTNC_DEVICE static Values<Begin, End> load(unsigned array) {
    Values<Begin, End> values;
#pragma unroll
    for (int n = Begin; n < End; ++n)
      values.of[n - Begin] = ptx::ld_shared_float2(array + 4 * Fragment<1, Rows>::column(n, 0));
    return values;
  }
  ATTNC_DEVICE void fill_values(int i, float bias, float delta) const {
    ptx::st_shared(base + 4 * i, bias);
    ptx::st_shared(base + kDelta + 4 * i, bias == negative_infinity() ? 0.f : delta);
  }
};

/// RowValues of consecutive rows, followed by
///   interval   int2: the row's live columns, clipped to [0, kv_len); all of these in a step without kStepMasked; if
///              kReadsIntervals
///   row        Mod::Row; if kReadsRows
template <class M, int Rows> struct RowTable : RowValues<Rows> {
  using RowValues<Rows>::base;
  static constexpr int kInterval = RowValues<Rows>::kEnd;
  static constexpr int kRow = kInterval + (kReadsIntervals ? 8 * Rows : 0);
  static constexpr int kBytes = round_up(kRow + (kReadsRows ? Rows * int(sizeof(Mod::Row)) : 0), 16);

  ATTNC_DEVICE int2 interval(int row) const {
    int x[2];
    ptx::ld_shared(x, base + kInterval + 8 * row);
    return {x[0], x[1]};
  }
  ATTNC_DEVICE Mod::Row& row(int row) const { return ((Mod::Row*)__cvta_shared_to_generic(base + kRow))[row]; }

  /// Fills in row `i` of a step. Values from global memory are arguments, so that their loads can be issued early.
  ATTNC_DEVICE void fill(const ForwardParams& p, const ModArgs& args, const Mod::Head& head, int b, int h, Step step,
                         int i, int origin, float lse, float delta) const {
    const int q_idx = step.start + i, inside = position_of<M>(args, head, min(q_idx, p.q_len - 1));
    const Mod::Row row = M::row(args, head, b, h, inside, float(inside - origin)); // SEAM(row)
    const bool exists = q_idx < p.q_len;
    float bias = exists ? weight_bias(lse, M::row_shift(args, head, row)) : negative_infinity(); // SEAM(row_shift)
    if constexpr (kDrops<M>) {
      const float factor = kept_factor<M>(args, head); // of weights, and so of their rates
      bias += ptx::lg2(factor), delta *= ptx::rcp(factor);
    }
    this->fill_values(i, bias, delta);
    if constexpr (kReadsIntervals) {
      int interval[2] = {0, p.kv_len};
      if (step.flags & kStepMasked) {
        const TileBounds live = M::bounds(args, head, b, h, inside, inside + 1); // SEAM(bounds)
        interval[0] = live.begin, interval[1] = min(live.end, p.kv_len);
      }
      ptx::st_shared(base + kInterval + 8 * i, interval);
    }
    if constexpr (kReadsRows) this->row(i) = row;
  }
};

/// What a lane knows of its KV columns, rows of a fragment, for one query head.
template <class M, int RowGroups = 1> struct KvPlace : Drops<M> {
  using Hooks = M;
  static constexpr int kRows = 2 * RowGroups;
  int b, h, kv_first; ///< kv_first: kv_idx of the lane's row 0 of the fragment
  int origin;         ///< what q_float and kv_float count from
  Mod::Head head;
  Mod::Col col[kRows];
  typename M::Exponents exponents;

  KvPlace() = default;
  ATTNC_DEVICE KvPlace(const ForwardParams& p, const ModArgs& args, int b, int h, int kv_start, int first)
      : b(b), h(h), kv_first(kv_start + first), origin(Mod::kAnyOrigin ? kv_start : 0),
        head(M::head(args, b, h)),                   // SEAM(head)
        exponents(p.scale, M::factors(args, head)) { // SEAM(factors)
    if constexpr (kDrops<M>) static_cast<Drops<M>&>(*this) = Drops<M>(args, head, b, h);
#pragma unroll
    for (int r = 0; r < kRows; ++r) col[r] = M::col(args, head, b, h, kv_idx(p, r), kv_float(r), 0.f); // SEAM(col)
  }

  ATTNC_DEVICE int position(int r) const { return kv_first + Fragment<RowGroups, 8>::row_offset(r); }
  ATTNC_DEVICE int kv_idx(const ForwardParams& p, int r) const { return min(position(r), p.kv_len - 1); }
  ATTNC_DEVICE float kv_float(int r) const { return float(position(r) - origin); }
  /// `row`: of the step.
  template <class Table>
  ATTNC_DEVICE Coord coord(const ForwardParams& p, const ModArgs& args, Table, Step step, int row, int r) const {
    if constexpr (kHasOffsets<M>)
      return {b, h, position_of<M>(args, head, min(step.start + row, p.q_len - 1)), kv_idx(p, r)};
    else
      return {b, h, min(step.start + row, p.q_len - 1), kv_idx(p, r)};
  }
};

/// Whether the gradient of a product differs from that of its score.
constexpr bool kHasRates = !Mod::kKeepsGradient;
/// Whether rates have registers of their own. With dropout, they are the weights of before.
constexpr bool kRatesApart = kHasRates || kDrops<Mod>;
/// Whether small products have a faster path (TanhExponents).
constexpr bool kHasSmall = !Mod::Exponents::kCallsScore && !Mod::Exponents::kGradientIsOne;

/// Deltas of a step: in registers, or, if none are to spare, each loaded when it is used.
template <class Table, bool Late> struct DeltaOfStep { using Type = typename Table::template Values<>; };
template <class Table> struct DeltaOfStep<Table, true> { using Type = typename Table::LateValues; };
template <class Table, bool Late> using DeltaOf = typename DeltaOfStep<Table, Late>::Type;

/// Whether products may take the path of small ones.
template <class Place, class Scores> ATTNC_DEVICE bool are_small(const Place& place, const Scores& s) {
  if constexpr (kHasSmall)
    return place.exponents.are_small(s);
  else
    return false;
}

/// The results of to_weights(), rounded: P for dV, and the rates P mod' for to_gradients(). Rates are computed together
/// with the weights: this shares work between score and derivative, and products need not be kept.
template <class Element, int Rows, int RowGroups = 1> struct PackedWeights {
  using Packed = PackedFragment<Element, RowGroups, Rows>;
  Packed weights, own_rates; ///< own_rates: if kRatesApart
  ATTNC_DEVICE Packed& rates() {
    if constexpr (kRatesApart) return own_rates;
    return weights;
  }
};

/// Turns products into weights and rates, for groups [Begin, End) of 8 rows of Q. Dead elements may become anything.
/// Small: all products are small (TanhExponents).
template <int Begin, int End, bool Small, class Scores, class Element, class Place, class Table, int RowGroups,
          int Rows, class Bias>
ATTNC_DEVICE void to_weights(const Scores& s, PackedWeights<Element, Rows, RowGroups>& out, const ForwardParams& p,
                             const ModArgs& args, const Place& place, Table table, Bias bias, Step step) {
  using M = typename Place::Hooks;
#pragma unroll
  for (int n = Begin; n < End; ++n) {
    float weight[2 * RowGroups][2], rate[2 * RowGroups][2];
#pragma unroll
    for (int e = 0; e < 2; ++e)
#pragma unroll
      for (int r = 0; r < 2 * RowGroups; ++r) {
        const float x = s.at(r, n, e), b = bias.at(n, e);
        if constexpr (Mod::Exponents::kCallsScore) {
          const int row = s.column(n, e);
          const Coord at = place.coord(p, args, table, step, row, r);
          const Mod::Row& of_row = table.row(row);
          const float score =
              M::score(args, place.head, of_row, place.col[r], at, x * place.exponents.score_scale); // SEAM(score)
          const float w = ptx::ex2(place.exponents.exponent(score, b, place.kv_float(r)));
          weight[r][e] = w;
          if constexpr (M::kPassesGradient) {
            const float grad = M::d_score(args, place.head, of_row, place.col[r], at, x * p.scale, w); // SEAM(d_score)
            rate[r][e] = w == 0.f ? 0.f : grad;
          }
        } else if constexpr (kHasRates) {
          const float y = Small ? place.exponents.capped_small(x) : place.exponents.capped(x);
          weight[r][e] = ptx::ex2(y + b);
          rate[r][e] = weight[r][e] * place.exponents.gradient(y);
        } else {
          weight[r][e] = ptx::ex2(place.exponents.exponent(x, b, place.kv_float(r)));
        }
        if constexpr (!M::kPassesGradient) rate[r][e] = 0.f;
      }
#pragma unroll
    for (int r = 0; r < 2 * RowGroups; ++r) {
      out.weights.a[r / 2][n / 2][n % 2 * 2 + r % 2] = pack2<Element>(weight[r][0], weight[r][1]);
      if constexpr (kHasRates)
        out.own_rates.a[r / 2][n / 2][n % 2 * 2 + r % 2] = pack2<Element>(rate[r][0], rate[r][1]);
      else if constexpr (kRatesApart)
        out.own_rates.a[r / 2][n / 2][n % 2 * 2 + r % 2] = out.weights.a[r / 2][n / 2][n % 2 * 2 + r % 2];
    }
  }
}

/// Sets the unwanted halves of a packed pair to 0.
ATTNC_DEVICE unsigned keep_halves(unsigned pair, bool low, bool high) {
  return pair & ((low ? 0xffffu : 0u) | (high ? 0xffff0000u : 0u));
}

/// Whether steps with kStepMasked evaluate mask_mod.
constexpr bool kAsksMaskMod = Mod::kHasMaskMod && !kReadsIntervals;

/// Says which of the lane's KV columns a row of Q sees. Asks: whether mask_mod must be evaluated. `rows`: those of the
/// step that exist.
template <bool Asks, class M, int RowGroups, int Rows>
ATTNC_DEVICE void find_live(bool (&live)[2 * RowGroups], const ForwardParams& p, const ModArgs& args,
                            const KvPlace<M, RowGroups>& place, RowTable<M, Rows> table, Step step, int row, int rows) {
  int2 interval;
  if constexpr (kReadsIntervals) interval = table.interval(row);
#pragma unroll
  for (int r = 0; r < 2 * RowGroups; ++r) {
    const int kv_idx = place.position(r);
    live[r] = kv_idx < p.kv_len && row < rows;
    if constexpr (kReadsIntervals) {
      live[r] = kv_idx >= interval.x && kv_idx < interval.y && row < rows;
    } else if constexpr (Asks) {
      live[r] &= M::mask(args, place.head, table.row(row), place.col[r], // SEAM(mask)
                         place.coord(p, args, table, step, row, r));
    }
  }
}

/// Sets weights and rates of dead elements to 0: those past an end, and if Asks, masked ones.
template <int Begin, int End, bool Asks, class Element, class M, int RowGroups, int Rows>
ATTNC_DEVICE void drop_dead(PackedWeights<Element, Rows, RowGroups>& packed, const ForwardParams& p,
                            const ModArgs& args, const KvPlace<M, RowGroups>& place, RowTable<M, Rows> table,
                            Step step) {
  // Rows that exist. NOTE: computed here, because registers are scarce in between.
  const int rows = Mod::Exponents::kCallsScore ? ptx::opaque(p.q_len - step.start) : Rows;
#pragma unroll
  for (int n = Begin; n < End; ++n) {
    bool live[2][2 * RowGroups];
#pragma unroll
    for (int e = 0; e < 2; ++e)
      find_live<Asks>(live[e], p, args, place, table, step, Fragment<1, Rows>::column(n, e), rows);
#pragma unroll
    for (int r = 0; r < 2 * RowGroups; ++r) {
      unsigned& weight = packed.weights.a[r / 2][n / 2][n % 2 * 2 + r % 2];
      weight = keep_halves(weight, live[0][r], live[1][r]);
      if constexpr (kRatesApart) {
        unsigned& rate = packed.own_rates.a[r / 2][n / 2][n % 2 * 2 + r % 2];
        rate = keep_halves(rate, live[0][r], live[1][r]);
      }
    }
  }
}

/// Sets weights and rates of dead elements to 0. Required if KV ends within the tile, and in steps with kStepHasDead.
// NOTE: one question for all elements, and no && before mask_mod: under a condition, ptxas keeps all answers as bits of
// a register, set one by one.
template <int Begin, int End, class Element, class M, int RowGroups, int Rows>
ATTNC_DEVICE void drop_dead(PackedWeights<Element, Rows, RowGroups>& packed, const ForwardParams& p,
                            const ModArgs& args, const KvPlace<M, RowGroups>& place, RowTable<M, Rows> table,
                            Step step) {
  if (kAsksMaskMod && step.flags & kStepMasked)
    drop_dead<Begin, End, kAsksMaskMod>(packed, p, args, place, table, step);
  else
    drop_dead<Begin, End, false>(packed, p, args, place, table, step);
}

/// Turns gradients of weights into gradients of products, without the softmax scale. Dead elements may become anything.
/// A rate beyond f16 is infinite, and so is its gradient, unless 0 is due. `weights`: with dropout, where those of
/// dropped elements are 0.
template <int Begin, int End, class Element, int RowGroups, int Rows, class Delta, class... Weights>
ATTNC_DEVICE void
to_gradients(const Fragment<RowGroups, Rows>& d_weight, const PackedFragment<Element, RowGroups, Rows>& rates,
             PackedFragment<Element, RowGroups, Rows>& out, const Delta& delta, const Weights&... weights) {
#pragma unroll
  for (int n = Begin; n < End; ++n)
#pragma unroll
    for (int r = 0; r < 2 * RowGroups; ++r) {
      float rate[2];
      unpack2<Element>(rates.a[r / 2][n / 2][n % 2 * 2 + r % 2], rate[0], rate[1]);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float d = d_weight.at(r, n, e);
        if constexpr (sizeof...(Weights)) {
          const unsigned pair = (weights.a[r / 2][n / 2][n % 2 * 2 + r % 2], ...);
          d = (e ? pair >> 16 : pair & 0xffffu) ? d : 0.f;
        }
        const float difference = d - delta_at(delta, r, n, e);
        const bool is_zero = kHasRates && Same<Element, F16>::value && difference == 0.f;
        rate[e] = is_zero ? 0.f : rate[e] * difference;
      }
      out.a[r / 2][n / 2][n % 2 * 2 + r % 2] = pack2<Element>(rate[0], rate[1]);
    }
}

/// Sets gradients of elements with rate 0 to 0, which includes all dead ones, whatever V is there.
template <int Begin, int End, class Element, int RowGroups, int Rows>
ATTNC_DEVICE void drop_dead(PackedFragment<Element, RowGroups, Rows>& gradients,
                            const PackedFragment<Element, RowGroups, Rows>& rates) {
#pragma unroll
  for (int n = Begin; n < End; ++n)
#pragma unroll
    for (int r = 0; r < 2 * RowGroups; ++r) {
      const unsigned rate = rates.a[r / 2][n / 2][n % 2 * 2 + r % 2];
      unsigned& pair = gradients.a[r / 2][n / 2][n % 2 * 2 + r % 2];
      pair = keep_halves(pair, rate & 0xffffu, rate >> 16);
    }
}

} // namespace attnc
