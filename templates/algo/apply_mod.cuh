// Where a mod meets the accumulators of S = Q K^T: turns products into exponents of two.
//
// A lane holds 2 RowGroups rows of a tile, and two columns of each group of 8 (tile/fragment.cuh).
#pragma once

#include "attnc_mod.cuh"

#include "algo/drops.cuh"
#include "algo/exponents.cuh"
#include "algo/prob_mod.cuh"
#include "algo/sequence.cuh"
#include "algo/sink.cuh"
#include "algo/step_walk.cuh"
#include "algo/tanh_exponents.cuh"
#include "params.cuh"
#include "tile/fragment.cuh"

namespace attnc {

/// What a lane knows of its rows of a tile.
template <int RowGroups, class M = Mod> struct Place : Drops<M> {
  using Form = M::Exponents;
  static constexpr int kRows = 2 * RowGroups;
  int b, h, q_first; // q_first: q_idx of the lane's row 0
  int origin;        // what q_float and kv_float count from
  M::Head head;
  M::Row row[kRows];
  Form exponents;

  Place() = default;
  /// Takes rows from q_start on; the lane's first one is `first` rows behind it. `scale`: of products.
  ATTNC_DEVICE Place(const ForwardParams& p, const ModArgs& args, int b, int h, int q_start, int first, float scale)
      : b(b), h(h), q_first(q_start + first), origin(origin_of(q_start)), head(M::head(args, b, h)), // SEAM(head)
        exponents(scale, M::factors(args, head)) {                                                   // SEAM(factors)
    if constexpr (kDrops<M>) static_cast<Drops<M>&>(*this) = Drops<M>(args, head, b, h);
    if constexpr (kHasOffsets<M>) origin = origin_of(q_offset<M>(args, head) + q_start);
    const float q_float = float(q_offset<M>(args, head) + q_first - origin);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      row[r] = M::row(args, head, b, h, position(p, args, r), // SEAM(row)
                      M::kAnyOrigin ? q_float + float(offset(r)) : float(position(p, args, r)));
  }

  ATTNC_DEVICE Place(const ForwardParams& p, const ModArgs& args, int b, int h, int q_start, int first)
      : Place(p, args, b, h, q_start, first, p.scale) {}

  /// Returns the position of the lane's row r, which is the mod's q_idx.
  ATTNC_DEVICE int position(const ForwardParams& p, const ModArgs& args, int r) const {
    return q_offset<M>(args, head) + q_idx(p, r);
  }
  /// Returns the position of row 0, also of one that does not exist.
  ATTNC_DEVICE int first_position(const ModArgs& args) const { return q_offset<M>(args, head) + q_first; }
  /// Returns the index of the lane's row r; of a row in front of the first or behind the last, the last.
  ATTNC_DEVICE int q_idx(const ForwardParams& p, int r) const {
    return int(min(unsigned(q_first + offset(r)), unsigned(p.q_len - 1)));
  }
  ATTNC_DEVICE static constexpr int offset(int r) { return Fragment<RowGroups, 8>::row_offset(r); }

  /// Returns where float positions count from. If the mod allows, that is the tile's first row: row terms that
  /// row_shift() takes out of the scores then stay small, and so exact enough.
  ATTNC_DEVICE static int origin_of(int first_position) { return M::kAnyOrigin ? first_position : 0; }

  ATTNC_DEVICE const Form& form(int) const { return exponents; }
  ATTNC_DEVICE float row_shift(const ModArgs& args, int r) const {
    return M::row_shift(args, head, row[r]); // SEAM(row_shift)
  }

  /// Returns the lane's first column of a step; kv_float() counts it as the mod does.
  ATTNC_DEVICE int kv_first(Step step) const { return step.start + Fragment<RowGroups, 8>::first_column(); }
  ATTNC_DEVICE float kv_float(Step step) const { return float(kv_first(step) - origin); }
};

/// Returns how many of a lane's columns, 8 n + e with e < 2, lie before column x.
ATTNC_DEVICE int columns_before(int x) { return x > 0 ? x / 8 * 2 + min(x % 8, 2) : 0; }

/// Returns a word with bits [begin, end) set, clipped to its 32 bits.
ATTNC_DEVICE unsigned bits_between(int begin, int end) {
  const auto below = [](int i) { return i <= 0 ? 0u : i >= 32 ? ~0u : (1u << i) - 1; };
  return below(end) & ~below(begin);
}

/// Sets the elements of a lane's row r outside its columns [begin, end) to `dead`. Each column has a bit, so an element
/// costs a select and part of a test.
template <int RowGroups, int Columns>
ATTNC_DEVICE void keep_columns(Fragment<RowGroups, Columns>& x, int r, int begin, int end, float dead) {
#pragma unroll
  for (int n = 0; n < Columns / 8; n += 16) {
    const unsigned word = bits_between(begin - 2 * n, end - 2 * n);
#pragma unroll
    for (int i = 0; i < 32 && n + i / 2 < Columns / 8; ++i)
      if (!(word >> i & 1)) x.at(r, n + i / 2, i % 2) = dead;
  }
}

/// Where Mod::Col of a step's columns come from: each lane computes its own (OwnColumns), or another role has computed
/// all of them (SharedColumns).
struct OwnColumns {};
template <class M = Mod> struct SharedColumns {
  const M::Col* first; ///< of the step
};

/// Calls function(element, row, col, coord) or function(element, row, col, coord, r, n, e) for each element.
template <int RowGroups, int Columns, class M, class Source, class Function>
ATTNC_DEVICE void at_each_score(Fragment<RowGroups, Columns>& x, const ForwardParams& p, const ModArgs& args,
                                const Place<RowGroups, M>& place, Step step, Source columns, Function function) {
  const int kv_first = place.kv_first(step);
  const float kv_float = place.kv_float(step);
#pragma unroll
  for (int n = 0; n < Columns / 8; ++n)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int kv_idx = min(kv_first + 8 * n + e, max(p.kv_len, 1) - 1);
      typename M::Col col;
      if constexpr (Same<Source, SharedColumns<M>>::value)
        col = columns.first[x.column(n, e)];
      else
        col = M::col(args, place.head, place.b, place.h, kv_idx, kv_float, float(8 * n + e)); // SEAM(col)
#pragma unroll
      for (int r = 0; r < 2 * RowGroups; ++r) {
        const Coord at = {place.b, place.h, place.position(p, args, r), kv_idx};
        if constexpr (requires { function(x.at(r, n, e), place.row[r], col, at, r, n, e); })
          function(x.at(r, n, e), place.row[r], col, at, r, n, e);
        else
          function(x.at(r, n, e), place.row[r], col, at);
      }
    }
}

/// Sets elements of consecutive columns from kv_first on to `dead`: those past the end of KV and, if `masked` and rows
/// are intervals, those outside their row's. head_of(r), h_of(r), position_of(r): of a lane's row.
template <class M, int RowGroups, int Columns, class Site>
ATTNC_DEVICE void keep_live_columns(Fragment<RowGroups, Columns>& x, const ForwardParams& p, const ModArgs& args,
                                    const Site& site, int kv_first, bool masked, float dead) {
#pragma unroll
  for (int r = 0; r < 2 * RowGroups; ++r) {
    int begin = kv_first, end = kv_length<M>(p, args, site.head(r));
    if constexpr (M::kRowsAreIntervals) {
      if (masked) {
        const int q_idx = site.position(r);
        const auto live = M::bounds(args, site.head(r), site.place.b, site.h(r), q_idx, q_idx + 1); // SEAM(bounds)
        begin = live.begin, end = min(live.end, kv_length<M>(p, args, site.head(r)));
      }
    }
    keep_columns(x, r, columns_before(begin - kv_first), columns_before(end - kv_first), dead);
  }
}

/// A step of consecutive columns, and rows of one head.
template <class M, int RowGroups, class Source> struct RowSite {
  const ForwardParams& p;
  const ModArgs& args;
  const Place<RowGroups, M>& place;
  Step step;
  Source columns;

  using Of = M;
  static constexpr bool kMayAsk = M::kHasMaskMod && !M::kRowsAreIntervals, kExpectsDead = kMayAsk;
  static constexpr bool kKeepsDead = M::Exponents::kKeepsDead;
  ATTNC_DEVICE bool has_dead() const { return step.flags & (kStepMasked | kStepTail); }
  ATTNC_DEVICE bool asks() const { return step.flags & kStepMasked; }

  ATTNC_DEVICE const M::Head& head(int) const { return place.head; }
  ATTNC_DEVICE int h(int) const { return place.h; }
  ATTNC_DEVICE int position(int r) const { return place.position(p, args, r); }
  ATTNC_DEVICE const M::Exponents& form(int) const { return place.exponents; }

  template <class Scores, class Function> ATTNC_DEVICE void at_each(Scores& x, Function function) const {
    at_each_score(x, p, args, place, step, columns, function);
  }
  template <class Scores, class Bias> ATTNC_DEVICE void to_scores(Scores& x, Bias& bias) const {
    place.exponents.to_scores(x, bias, place.kv_float(step));
  }
  template <class Scores> ATTNC_DEVICE void keep_live(Scores& x, float dead) const {
    if (kMayAsk && !(step.flags & kStepTail)) return;
    keep_live_columns<M>(x, p, args, *this, place.kv_first(step), step.flags & kStepMasked, dead);
  }
};

/// Turns products q k^T into the softmax's x (exponents.cuh). Elements that mask_mod masks, or that do not exist,
/// become -inf. Site: what a lane knows of its rows and of a step's columns:
///
///   Of                    the mod
///   has_dead()            whether the step may have dead elements; kExpectsDead: whether that is likely
///   asks()                whether mask_mod is called for each element; kMayAsk: whether it may be
///   keep_live(x, dead)    sets the other dead elements
///   at_each(x, function)  calls function(element, row, col, coord, r)
///   head(r), form(r)      of a row
///   to_scores(x, bias)    as in exponents.cuh; kKeepsDead: also
template <class Scores, class Site, class Bias>
ATTNC_DEVICE void apply_mod(Scores& x, const ModArgs& args, Site site, Bias& bias) {
  using M = Site::Of;
  const bool some_are_dead = site.has_dead();
  const auto mask = [&](float dead) {
    if constexpr (Site::kMayAsk)
      if (site.asks())
        site.at_each(x, [&](float& s, const M::Row& row, const M::Col& col, Coord at, int r, int, int) {
          if (!M::mask(args, site.head(r), row, col, at)) s = dead; // SEAM(mask)
        });
    site.keep_live(x, dead);
  };
  if constexpr (M::Exponents::kCallsScore)
    site.at_each(x, [&](float& s, const M::Row& row, const M::Col& col, Coord at, int r, int, int) {
      s = M::score(args, site.head(r), row, col, at, s * site.form(r).score_scale); // SEAM(score)
    });
  if (!Site::kKeepsDead && some_are_dead) mask(0.f);
  site.to_scores(x, bias);
  if (__builtin_expect(some_are_dead, Site::kExpectsDead)) mask(negative_infinity());
}
template <int RowGroups, int Columns, class M, class Source>
ATTNC_DEVICE void apply_mod(Fragment<RowGroups, Columns>& x, const ForwardParams& p, const ModArgs& args,
                            const Place<RowGroups, M>& place, Step step, Source columns,
                            StepBias<typename M::Exponents, 2 * RowGroups>& bias) {
  apply_mod(x, args, RowSite<M, RowGroups, Source>{p, args, place, step, columns}, bias);
}

/// Returns what a lane's row is divided by. Called after Softmax::finish(), for mods with a sink.
template <int RowGroups, class M, class Range>
ATTNC_DEVICE Denominator with_sink(const Softmax<2 * RowGroups, Range>& softmax, int r, const ForwardParams& p,
                                   const ModArgs& args, const Place<RowGroups, M>& place) {
  const float reference = softmax.reference(r, place.form(r).weight_factor(), place.row_shift(args, r));
  return Denominator::with_sink(softmax.sum[r], reference,
                                sink_of<Mod>(args, place.b, place.h, place.position(p, args, r)));
}

/// Finishes a lane's row. Returns the factor of its O.
template <int RowGroups, class M, class Range>
ATTNC_DEVICE float finish_row(Softmax<2 * RowGroups, Range>& softmax, int r, const ForwardParams& p,
                              const ModArgs& args, const Place<RowGroups, M>& place) {
  if constexpr (kIsWeight<Mod>) return 1.f;
  const float normalise = softmax.finish(r);
  if constexpr (kHasSink<Mod>) return with_sink(softmax, r, p, args, place).normalise;
  return normalise;
}

/// Stores lse and row maximum of a lane's rows. Called after finish_row().
template <int RowGroups, class M, class Range>
ATTNC_DEVICE void store_row_outputs(const ForwardParams& p, const ModArgs& args, const Place<RowGroups, M>& place,
                                    const Softmax<2 * RowGroups, Range>& softmax) {
  if (!p.lse && !p.row_max) return;
  const long long first_row = row_of_head<M>(p, place.b, place.h);
#pragma unroll
  for (int r = 0; r < 2 * RowGroups; ++r) {
    const int q_idx = place.q_first + place.offset(r);
    const float shift = place.row_shift(args, r), factor = place.form(r).weight_factor();
    if (threadIdx.x % 4 == 0 && unsigned(q_idx) < unsigned(p.q_len)) {
      if constexpr (kIsWeight<Mod>) {
        if (p.lse) p.lse[first_row + q_idx] = 0.f;
      } else if constexpr (kHasSink<Mod>) {
        if (p.lse) p.lse[first_row + q_idx] = with_sink(softmax, r, p, args, place).lse;
      } else {
        if (p.lse) p.lse[first_row + q_idx] = softmax.lse(r, factor, shift);
      }
      if (p.row_max) p.row_max[first_row + q_idx] = softmax.max(r, place.form(r), shift);
    }
  }
}

} // namespace attnc
