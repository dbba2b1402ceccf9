// Boxes of tokens on a grid as rows and columns of a tile: row-major, the last axis fastest.
//
// A lane has the columns 8 n + l with l = 2 (lane % 4) + e (tile/fragment.cuh). Along each axis, column 8 n + l has the
// coordinate f(n) + g(l): f is known at compile time, g depends on the lane. So the live columns of a row are one word
// per l, with a bit for each n. An element costs a select and part of a test, whatever the axes.
//
// Off-grid tokens (beside_grid.cuh) form rows and columns in run order.
// Params: a kernel's parameters, with ForwardParams `base` and the extents of the grids, q_extent and kv_extent.
#pragma once

#include "attnc_mod.cuh"

#include "algo/apply_mod.cuh"
#include "algo/beside_grid.cuh"

namespace attnc {

/// A box of A x B x C tokens.
template <int A, int B, int C> struct BoxShape {
  static constexpr int kTokens = A * B * C;
  ATTNC_DEVICE static constexpr int extent(int axis) { return axis == 0 ? A : axis == 1 ? B : C; }
  /// Returns the distance in tokens between neighbouring coordinates of an axis.
  ATTNC_DEVICE static constexpr int pitch(int axis) { return axis == 0 ? B * C : axis == 1 ? C : 1; }
  ATTNC_DEVICE static int coordinate(int token, int axis) { return token / pitch(axis) % extent(axis); }
};

/// An axis of a box whose tokens are columns.
template <class Box, int Axis> struct ColumnAxis {
  static constexpr int kExtent = Box::extent(Axis), kPitch = Box::pitch(Axis), kSpan = kExtent * kPitch;
  static constexpr bool kByLane = kSpan <= 8 && 8 % kSpan == 0;
  static constexpr bool kByGroup = kPitch % 8 == 0;
  static_assert(kByLane || kByGroup || (kPitch < 8 && kSpan % 8 == 0),
                "a coordinate is a sum of one of n and one of l");
  static constexpr int kStep = kByLane || kByGroup ? 1 : 8 / kPitch; ///< coordinates between values of n's part
  static constexpr int kRepeat = kByGroup ? kPitch / 8 : 1;          ///< consecutive groups with the same coordinate
  static constexpr int kCount = kByLane ? 1 : kByGroup ? kExtent : kSpan / 8; ///< values of n's part
  static constexpr int kPeriod = kRepeat * kCount;

  ATTNC_DEVICE static constexpr int of_group(int n) { return kByLane ? 0 : n % kPeriod / kRepeat * kStep; }
  ATTNC_DEVICE static int of_lane(int l) { return kByGroup ? 0 : kByLane ? l / kPitch % kExtent : l / kPitch; }

  /// Returns a word whose bit n is set if column 8 n + l has its coordinate in [begin, end), counted from the box.
  template <int Groups> ATTNC_DEVICE static unsigned inside(int begin, int end, int l) {
    begin -= of_lane(l), end -= of_lane(l);
    if constexpr (kCount == 1) return begin <= 0 && 0 < end ? ~0u : 0u;
    // Range of n's values that lie inside.
    const int first = (begin + kStep - 1) / kStep, last = (end + kStep - 1) / kStep;
    const int from = begin <= 0 ? 0 : first, to = end <= 0 ? 0 : min(last, kCount);
    return bits_between(from * kRepeat, to * kRepeat) * repeated<Groups>();
  }

private:
  /// Returns a word with a bit at the beginning of each period.
  template <int Groups> ATTNC_DEVICE static constexpr unsigned repeated() {
    unsigned word = 0;
    for (int n = 0; n < Groups; n += kPeriod) word |= 1u << n;
    return word;
  }
};

/// Keys along three axes: [begin, end) of each.
struct GridRange {
  int begin[3], end[3];
  ATTNC_DEVICE bool is_empty() const { return begin[0] >= end[0] || begin[1] >= end[1] || begin[2] >= end[2]; }
};

ATTNC_DEVICE GridRange whole_grid(const int (&extent)[3]) { return {{0, 0, 0}, {extent[0], extent[1], extent[2]}}; }

/// Returns the token at coordinates x of a grid with `before` off-grid tokens in front of it.
ATTNC_DEVICE Token token_at(const int (&x)[3], const int (&extent)[3], int before) {
  Token token;
  token.index = (x[0] * extent[1] + x[1]) * extent[2] + x[2] + (Mod::kHasBeside ? before : 0);
  token.on_grid = true;
#pragma unroll
  for (int i = 0; i < Mod::kGridAxes; ++i) token.at[i] = x[i + 3 - Mod::kGridAxes];
  return token;
}

/// Returns token i of a tile at `origin`. `exists`: whether there is one; otherwise the result is clamped to the
/// border, or lies behind it unless Inside. `beside`: tokens of each run.
template <class Box, bool Inside = true>
ATTNC_DEVICE Token find_token(Box, const int (&origin)[3], int i, const int (&extent)[3], const int (&beside)[2],
                              bool& exists) {
  if (is_beside(origin)) {
    const int run = run_of(origin), tokens = run ? beside[1] : beside[0], place = origin[2] + i;
    exists = place < tokens;
    return token_beside(run, Inside ? min(place, tokens - 1) : place, extent, beside[0]);
  }
  int x[3];
  exists = true;
#pragma unroll
  for (int axis = 0; axis < 3; ++axis) {
    x[axis] = origin[axis] + Box::coordinate(i, axis);
    exists &= x[axis] < extent[axis];
    if (Inside) x[axis] = min(x[axis], extent[axis] - 1);
  }
  return token_at(x, extent, beside[0]);
}

/// Returns the keys that a query sees, clipped to their grid.
ATTNC_DEVICE GridRange keys_of(const ModArgs& args, const Mod::Head& head, int b, int h, Token q,
                               const int (&extent)[3]) {
  const KeyBox box = Mod::box(args, head, b, h, q); // SEAM(box)
  GridRange range;
#pragma unroll
  for (int axis = 0; axis < 3; ++axis) {
    const int i = axis - (3 - Mod::kGridAxes);
    range.begin[axis] = i < 0 ? 0 : max(box.begin[i < 0 ? 0 : i], 0);
    range.end[axis] = i < 0 ? 1 : min(box.end[i < 0 ? 0 : i], extent[axis]);
  }
  return range;
}

/// Which elements of a lane's rows are keys that the row sees, one word per axis. Steps that begin at the same
/// coordinate of an axis reuse its word.
template <class Box> struct LiveKeys {
  static constexpr int kGroups = Box::kTokens / 8;
  static_assert(kGroups <= 32, "a bit for each group");
  static constexpr int kNowhere = -1;
  int at[3] = {kNowhere, kNowhere, kNowhere}; ///< the box that the words describe
  unsigned word[3][2][2];                     ///< by axis, row, e

  template <int Axis> ATTNC_DEVICE void look(const GridRange (&keys)[2], int origin) {
    if (at[Axis] == origin) return;
    at[Axis] = origin;
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int l = Fragment<1, 8>::first_column() + (Box::pitch(Axis) == 1 ? e : 0); // e moves on the fastest
        word[Axis][r][e] = e == 1 && Box::pitch(Axis) != 1
                               ? word[Axis][r][0]
                               : ColumnAxis<Box, Axis>::template inside<kGroups>(keys[r].begin[Axis] - origin,
                                                                                 keys[r].end[Axis] - origin, l);
      }
  }

  /// Sets elements whose keys their row does not see to `dead`. `origin`: of the box whose tokens are the columns.
  template <int Columns>
  ATTNC_DEVICE void keep(Fragment<1, Columns>& x, const GridRange (&keys)[2], const int (&origin)[3], float dead) {
    look<0>(keys, origin[0]);
    look<1>(keys, origin[1]);
    look<2>(keys, origin[2]);
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const unsigned live = word[0][r][e] & word[1][r][e] & word[2][r][e];
#pragma unroll
        for (int n = 0; n < kGroups; ++n)
          if (!(live >> n & 1)) x.at(r, n, e) = dead;
      }
  }
};

/// What a lane knows of its two rows of a box of queries.
struct GridPlace {
  using Form = Mod::Exponents;
  int b, h;
  Mod::Head head;
  Mod::Row row[2];
  Form exponents;
  Token q[2];
  bool exists[2];    ///< whether there is a query
  GridRange keys[2]; ///< keys that each query sees
  GridRange common;  ///< keys that all queries of the warp see

  GridPlace() = default;
  /// `origin`: of the box, or of off-grid tokens; `first`: the lane's row 0 among its tokens. Called by all lanes of
  /// the warp.
  template <class Box, class Params>
  ATTNC_DEVICE GridPlace(Box, const Params& p, const ModArgs& args, int b, int h, const int (&origin)[3], int first)
      : b(b), h(h), head(Mod::head(args, b, h)),
        exponents(p.base.scale, Mod::factors(args, head)) { // SEAM(head) SEAM(factors)
    const TokensBeside beside = beside_of(p);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      q[r] = find_token(Box(), origin, first + 8 * r, p.q_extent, beside.q, exists[r]);
      row[r] = Mod::row(args, head, b, h, q[r], float(q[r].index)); // SEAM(row)
      keys[r] = is_beside(origin) ? GridRange{{0, 0, 0}, {p.kv_extent[0], p.kv_extent[1], p.kv_extent[2]}}
                                  : keys_of(args, head, b, h, q[r], p.kv_extent);
    }
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
      common.begin[axis] = __reduce_max_sync(0xffffffffu, max(keys[0].begin[axis], keys[1].begin[axis]));
      common.end[axis] = __reduce_min_sync(0xffffffffu, min(keys[0].end[axis], keys[1].end[axis]));
    }
  }

  ATTNC_DEVICE const Form& form(int) const { return exponents; }
  ATTNC_DEVICE static constexpr float row_shift(const ModArgs&, int) { return 0.f; } // row terms are kept

  /// Whether the queries lie off the grid; either all of a box do or none.
  ATTNC_DEVICE bool is_beside_grid() const { return Mod::kHasBeside && !q[0].on_grid; }

  /// Whether all queries of the warp see all keys of a box.
  template <class Box> ATTNC_DEVICE bool all_see(Box, const int (&at)[3]) const {
    bool all = true;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis)
      all &= common.begin[axis] <= at[axis] && at[axis] + Box::extent(axis) <= common.end[axis];
    return all;
  }
};

/// Returns what the row of a query is divided by. Called after Softmax::finish(), for mods with a sink.
ATTNC_DEVICE Denominator with_sink(const Softmax<2>& softmax, int r, const ModArgs& args, const GridPlace& place,
                                   Token q) {
  return Denominator::with_sink(softmax.sum[r], softmax.reference(r, place.form(r).weight_factor(), 0.f),
                                sink_of<Mod>(args, place.b, place.h, q));
}

/// Returns the lse of a query's row. Called after Softmax::finish().
ATTNC_DEVICE float lse_of(const Softmax<2>& softmax, int r, const ModArgs& args, const GridPlace& place, Token q) {
  if constexpr (kHasSink<Mod>)
    return with_sink(softmax, r, args, place, q).lse;
  else
    return softmax.lse(r, place.form(r).weight_factor(), 0.f);
}

/// A step over off-grid keys of a run, in place of a box of keys.
struct KeysOfRun {};

/// Returns the key in column 8 n + l of a box. Places beyond the grid's end are clamped to its border.
template <class Box, class Params>
ATTNC_DEVICE Token key_at(Box, const Params& p, const int (&origin)[3], int n, int l) {
  const int at[3] = {
      min(origin[0] + ColumnAxis<Box, 0>::of_lane(l) + ColumnAxis<Box, 0>::of_group(n), p.kv_extent[0] - 1),
      min(origin[1] + ColumnAxis<Box, 1>::of_lane(l) + ColumnAxis<Box, 1>::of_group(n), p.kv_extent[1] - 1),
      min(origin[2] + ColumnAxis<Box, 2>::of_lane(l) + ColumnAxis<Box, 2>::of_group(n), p.kv_extent[2] - 1)};
  return token_at(at, p.kv_extent, beside_of(p).kv[0]);
}
/// The same for keys of a run.
template <class Params> ATTNC_DEVICE Token key_at(KeysOfRun, const Params& p, const int (&origin)[3], int n, int l) {
  const TokensBeside beside = beside_of(p);
  const int run = run_of(origin), tokens = run ? beside.kv[1] : beside.kv[0];
  return token_beside(run, min(origin[2] + 8 * n + l, tokens - 1), p.kv_extent, beside.kv[0]);
}

/// A step over keys of a box at `origin`, or of a run (algo/apply_mod.cuh: Site). MayAsk: mask_mod may have to be
/// called for each key; is_asked: it has to be here. is_cut: whether further keys are dead; keep(x, dead) sets their
/// elements.
// NOTE: the members of Place depend on the template, so that members that a form of exponents lacks are not looked up.
template <class Box, bool MayAsk, class Params, class Place, class Keep> struct KeySite {
  const Params& p;
  const ModArgs& args;
  const Place& place;
  const int (&origin)[3];
  bool is_asked, is_cut;
  Keep keep;

  using Of = Mod;
  static constexpr bool kMayAsk = MayAsk, kExpectsDead = true, kKeepsDead = Mod::Exponents::kKeepsDead;
  ATTNC_DEVICE bool has_dead() const { return is_asked || is_cut; }
  ATTNC_DEVICE bool asks() const { return is_asked; }
  ATTNC_DEVICE const Mod::Head& head(int) const { return place.head; }
  ATTNC_DEVICE const Mod::Exponents& form(int) const { return place.exponents; }

  template <int Columns, class Function> ATTNC_DEVICE void at_each(Fragment<1, Columns>& x, Function function) const {
#pragma unroll
    for (int n = 0; n < Columns / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const Token kv = key_at(Box(), p, origin, n, x.first_column() + e);
        const Mod::Col col = Mod::col(args, place.head, place.b, place.h, kv, float(kv.index), 0.f); // SEAM(col)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          function(x.at(r, n, e), place.row[r], col, Coord{place.b, place.h, place.q[r].index, kv.index}, r, n, e);
      }
  }
  template <class Scores, class Bias> ATTNC_DEVICE void to_scores(Scores& x, Bias& bias) const {
    place.exponents.to_scores(x, bias, 0.f);
  }
  template <class Scores> ATTNC_DEVICE void keep_live(Scores& x, float dead) const { keep(x, dead); }
};
template <class Box, bool MayAsk, class Params, class Place, class Keep>
ATTNC_DEVICE KeySite<Box, MayAsk, Params, Place, Keep> key_site(const Params& p, const ModArgs& args,
                                                                const Place& place, const int (&origin)[3],
                                                                bool is_asked, bool is_cut, Keep keep) {
  return {p, args, place, origin, is_asked, is_cut, keep};
}

/// apply_mod() for keys in the box at `origin`. `is_full`: mask_mod is known to be true for all existing keys.
template <class Box, int Columns, class Params, class Place>
ATTNC_DEVICE void apply_mod_on_grid(Fragment<1, Columns>& x, const Params& p, const ModArgs& args, const Place& place,
                                    LiveKeys<Box>& live, const int (&origin)[3], StepBias<Mod::Exponents, 2>& bias,
                                    bool is_full = false) {
  constexpr bool kAsksBeside = Mod::kHasBeside && Mod::kQueryBeside == Beside::Asks;
  constexpr bool kMayAsk = !Mod::kBoxIsMask || kAsksBeside;
  const bool asks = place.is_beside_grid() ? kAsksBeside : !Mod::kBoxIsMask && !is_full;
  const auto keep = [&](Fragment<1, Columns>& x, float dead) { live.keep(x, place.keys, origin, dead); };
  const bool is_cut = !place.all_see(Box(), origin);
  apply_mod(x, args, key_site<Box, kMayAsk>(p, args, place, origin, asks, is_cut, keep), bias);
}

/// The same for keys of a run from `origin` on.
template <int Columns, class Params, class Place>
ATTNC_DEVICE void apply_mod_beside_grid(Fragment<1, Columns>& x, const Params& p, const ModArgs& args,
                                        const Place& place, const int (&origin)[3], StepBias<Mod::Exponents, 2>& bias) {
  constexpr bool kKeyAsks = Mod::kKeyBeside == Beside::Asks, kBothAsk = Mod::kBothBeside == Beside::Asks;
  constexpr bool kMayAsk = kKeyAsks || kBothAsk;
  const bool asks = place.is_beside_grid() ? kBothAsk : kKeyAsks;
  const int left = left_of_run(origin, beside_of(p).kv);
  const auto keep = [&](Fragment<1, Columns>& x, float dead) {
#pragma unroll
    for (int r = 0; r < 2; ++r) keep_columns(x, r, 0, columns_before(left - x.first_column()), dead);
  };
  apply_mod(x, args, key_site<KeysOfRun, kMayAsk>(p, args, place, origin, asks, left < Columns, keep), bias);
}

} // namespace attnc
