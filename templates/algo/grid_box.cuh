// Boxes of tokens on a grid as rows and columns of a tile: row-major, the last axis fastest.
//
// A lane has the columns 8 n + l with l = 2 (lane % 4) + e (tile/fragment.cuh). Along each axis the coordinate of a column is
// one that n alone decides, known at compile time, plus one that l alone decides. Which elements of a row lie in a box of
// keys is then a word for each l, a bit for each n: an element costs a select and part of a test, whatever the axes.
//
// Of tokens beside the grid (beside_grid.cuh), rows and columns are some in a row.
// Params: of a kernel, with `base`, its ForwardParams, and the extents of the grids, q_extent and kv_extent.
#pragma once

#include "attnc_mod.cuh"

#include "algo/apply_mod.cuh"
#include "algo/beside_grid.cuh"

namespace attnc {

/// A box of A x B x C tokens.
template <int A, int B, int C> struct BoxShape {
  static constexpr int kTokens = A * B * C;
  ATTNC_DEVICE static constexpr int extent(int axis) { return axis == 0 ? A : axis == 1 ? B : C; }
  /// Tokens from one coordinate of an axis to the next.
  ATTNC_DEVICE static constexpr int pitch(int axis) { return axis == 0 ? B * C : axis == 1 ? C : 1; }
  ATTNC_DEVICE static int coordinate(int token, int axis) { return token / pitch(axis) % extent(axis); }
};

/// An axis of a box whose tokens are columns.
template <class Box, int Axis> struct ColumnAxis {
  static constexpr int kExtent = Box::extent(Axis), kPitch = Box::pitch(Axis), kSpan = kExtent * kPitch;
  static constexpr bool kByLane = kSpan <= 8 && 8 % kSpan == 0;
  static constexpr bool kByGroup = kPitch % 8 == 0;
  static_assert(kByLane || kByGroup || (kPitch < 8 && kSpan % 8 == 0), "a coordinate is a sum of one of n and one of l");
  static constexpr int kStep = kByLane || kByGroup ? 1 : 8 / kPitch;    ///< coordinates from one value of n's part to the next
  static constexpr int kRepeat = kByGroup ? kPitch / 8 : 1;             ///< groups in a row that have one
  static constexpr int kCount = kByLane ? 1 : kByGroup ? kExtent : kSpan / 8; ///< values of n's part
  static constexpr int kPeriod = kRepeat * kCount;

  ATTNC_DEVICE static constexpr int of_group(int n) { return kByLane ? 0 : n % kPeriod / kRepeat * kStep; }
  ATTNC_DEVICE static int of_lane(int l) { return kByGroup ? 0 : kByLane ? l / kPitch % kExtent : l / kPitch; }

  /// Bit n: the coordinate of column 8 n + l lies in [begin, end), counted from the box.
  template <int Groups> ATTNC_DEVICE static unsigned inside(int begin, int end, int l) {
    begin -= of_lane(l), end -= of_lane(l);
    if constexpr (kCount == 1) return begin <= 0 && 0 < end ? ~0u : 0u;
    // Values of n's part from the first one on that is not before.
    const int first = (begin + kStep - 1) / kStep, last = (end + kStep - 1) / kStep;
    const int from = begin <= 0 ? 0 : first, to = end <= 0 ? 0 : min(last, kCount);
    return bits_between(from * kRepeat, to * kRepeat) * repeated<Groups>();
  }

private:
  /// A bit at each beginning of a period.
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

/// The token at coordinates x of a grid, behind as many others.
ATTNC_DEVICE Token token_at(const int (&x)[3], const int (&extent)[3], int before) {
  Token token;
  token.index = (x[0] * extent[1] + x[1]) * extent[2] + x[2] + (Mod::kHasBeside ? before : 0);
  token.on_grid = true;
#pragma unroll
  for (int i = 0; i < Mod::kGridAxes; ++i) token.at[i] = x[i + 3 - Mod::kGridAxes];
  return token;
}

/// Token i of a tile at `origin`, and whether there is one; else it is one at the border, or, unless Inside, behind it.
/// `beside`: tokens of the runs.
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

/// The keys that a query sees, clipped to their grid.
ATTNC_DEVICE GridRange keys_of(const ModArgs& args, const Mod::Head& head, int b, int h, Token q, const int (&extent)[3]) {
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

/// Which elements of a lane's rows lie within the keys that the rows see, axis by axis. Steps that begin at one coordinate of
/// an axis have one word for it.
template <class Box> struct LiveKeys {
  static constexpr int kGroups = Box::kTokens / 8;
  static_assert(kGroups <= 32, "a bit for each group");
  static constexpr int kNowhere = -1;
  int at[3] = {kNowhere, kNowhere, kNowhere}; ///< the box that the words are of
  unsigned word[3][2][2];                     ///< by axis, row, e

  template <int Axis> ATTNC_DEVICE void look(const GridRange (&keys)[2], int origin) {
    if (at[Axis] == origin) return;
    at[Axis] = origin;
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int l = Fragment<1, 8>::first_column() + (Box::pitch(Axis) == 1 ? e : 0); // e is of the fastest axis
        word[Axis][r][e] = e == 1 && Box::pitch(Axis) != 1
                               ? word[Axis][r][0]
                               : ColumnAxis<Box, Axis>::template inside<kGroups>(keys[r].begin[Axis] - origin,
                                                                                 keys[r].end[Axis] - origin, l);
      }
  }

  /// Sets the elements of other keys to `dead`. `origin`: of the box whose tokens are the columns.
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
  bool exists[2];    ///< there is the query
  GridRange keys[2]; ///< that it sees
  GridRange common;  ///< that all queries of the warp see

  GridPlace() = default;
  /// `origin`: of the box, or of tokens beside the grid; `first`: the lane's row 0 among its tokens. All lanes of the warp.
  template <class Box, class Params>
  ATTNC_DEVICE GridPlace(Box, const Params& p, const ModArgs& args, int b, int h, const int (&origin)[3], int first)
      : b(b), h(h), head(Mod::head(args, b, h)), exponents(p.base.scale, Mod::factors(args, head)) { // SEAM(head) SEAM(factors)
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
  ATTNC_DEVICE static constexpr float row_shift(const ModArgs&, int) { return 0.f; } // mods on grids keep their row terms

  /// Whether the queries lie beside the grid, all of the box.
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

/// Keys of a run beside the grid, in place of a box of keys.
struct KeysOfRun {};

/// The key in column 8 n + l of a box; of a place behind the grid's end, one at its border.
template <class Box, class Params>
ATTNC_DEVICE Token key_at(Box, const Params& p, const int (&origin)[3], int n, int l) {
  const int at[3] = {min(origin[0] + ColumnAxis<Box, 0>::of_lane(l) + ColumnAxis<Box, 0>::of_group(n), p.kv_extent[0] - 1),
                     min(origin[1] + ColumnAxis<Box, 1>::of_lane(l) + ColumnAxis<Box, 1>::of_group(n), p.kv_extent[1] - 1),
                     min(origin[2] + ColumnAxis<Box, 2>::of_lane(l) + ColumnAxis<Box, 2>::of_group(n), p.kv_extent[2] - 1)};
  return token_at(at, p.kv_extent, beside_of(p).kv[0]);
}
/// Likewise of a run.
template <class Params> ATTNC_DEVICE Token key_at(KeysOfRun, const Params& p, const int (&origin)[3], int n, int l) {
  const TokensBeside beside = beside_of(p);
  const int run = run_of(origin), tokens = run ? beside.kv[1] : beside.kv[0];
  return token_beside(run, min(origin[2] + 8 * n + l, tokens - 1), p.kv_extent, beside.kv[0]);
}

/// Calls function(element, row, col, coord) for each element. Box: a shape, or KeysOfRun.
template <class Box, int Columns, class Params, class Function>
ATTNC_DEVICE void at_each_key(Fragment<1, Columns>& x, const Params& p, const ModArgs& args, const GridPlace& place,
                              const int (&origin)[3], Function function) {
#pragma unroll
  for (int n = 0; n < Columns / 8; ++n)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const Token kv = key_at(Box(), p, origin, n, x.first_column() + e);
      const Mod::Col col = Mod::col(args, place.head, place.b, place.h, kv, float(kv.index), 0.f); // SEAM(col)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        function(x.at(r, n, e), place.row[r], col, Coord{place.b, place.h, place.q[r].index, kv.index});
    }
}

/// What both below have in common. MayAsk: mask_mod may have to be asked of each key; `asks`: it has to. is_cut(): more keys are
/// dead; keep(dead): sets their elements.
template <class Box, bool MayAsk, int Columns, class Params, class Place, class IsCut, class Keep>
ATTNC_DEVICE void apply_mod_to_keys(Fragment<1, Columns>& x, const Params& p, const ModArgs& args, const Place& place, bool asks,
                                    const int (&origin)[3], StepBias<Mod::Exponents, 2>& bias, IsCut is_cut, Keep keep) {
  using Exponents = Mod::Exponents;
  const bool some_are_dead = asks || is_cut();
  const auto mask = [&](float dead) {
    if constexpr (MayAsk)
      if (asks)
        at_each_key<Box>(x, p, args, place, origin, [&](float& s, const Mod::Row& row, const Mod::Col& col, Coord at) {
          if (!Mod::mask(args, place.head, row, col, at)) s = dead; // SEAM(mask)
        });
    keep(dead);
  };
  if constexpr (Exponents::kCallsScore)
    at_each_key<Box>(x, p, args, place, origin, [&](float& s, const Mod::Row& row, const Mod::Col& col, Coord at) {
      s = Mod::score(args, place.head, row, col, at, s * place.exponents.score_scale); // SEAM(score)
    });
  if (!Exponents::kKeepsDead && some_are_dead) mask(0.f);
  place.exponents.to_scores(x, bias, 0.f);
  if (some_are_dead) mask(negative_infinity());
}

/// From products q k^T to the x of the softmax: apply_mod() (algo/apply_mod.cuh) of keys in the box at `origin`. `is_full`:
/// mask_mod is known to be true for all that there are.
// NOTE: what Place has depends on the template, so that members that a form of exponents lacks are not looked up.
template <class Box, int Columns, class Params, class Place>
ATTNC_DEVICE void apply_mod_on_grid(Fragment<1, Columns>& x, const Params& p, const ModArgs& args, const Place& place,
                                    LiveKeys<Box>& live, const int (&origin)[3], StepBias<Mod::Exponents, 2>& bias,
                                    bool is_full = false) {
  constexpr bool kAsksBeside = Mod::kHasBeside && Mod::kQueryBeside == Beside::Asks;
  const bool asks = place.is_beside_grid() ? kAsksBeside : !Mod::kBoxIsMask && !is_full;
  apply_mod_to_keys<Box, !Mod::kBoxIsMask || kAsksBeside>(
      x, p, args, place, asks, origin, bias, [&] { return !place.all_see(Box(), origin); },
      [&](float dead) { live.keep(x, place.keys, origin, dead); });
}

/// The same of keys of a run from `origin` on.
template <int Columns, class Params, class Place>
ATTNC_DEVICE void apply_mod_beside_grid(Fragment<1, Columns>& x, const Params& p, const ModArgs& args, const Place& place,
                                        const int (&origin)[3], StepBias<Mod::Exponents, 2>& bias) {
  const int left = left_of_run(origin, beside_of(p).kv);
  constexpr bool kKeyAsks = Mod::kKeyBeside == Beside::Asks, kBothAsk = Mod::kBothBeside == Beside::Asks;
  apply_mod_to_keys<KeysOfRun, kKeyAsks || kBothAsk>(
      x, p, args, place, place.is_beside_grid() ? kBothAsk : kKeyAsks, origin, bias, [&] { return left < Columns; },
      [&](float dead) {
#pragma unroll
        for (int r = 0; r < 2; ++r) keep_columns(x, r, 0, columns_before(left - x.first_column()), dead);
      });
}

} // namespace attnc
