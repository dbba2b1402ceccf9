// Where a mod meets transposed fragments, as in algo/transposed_scores.cuh, for boxes on a grid. A lane's rows are keys
// of a box that the CTA owns; its columns are queries of a step. Either may be off-grid tokens of a run instead.
#pragma once

#include "attnc_mod.cuh"

#include "algo/grid_queries.cuh"
#include "algo/transposed_scores.cuh"

namespace attnc {

/// Whether mask() is called for elements of some steps.
constexpr bool kMayAsk =
    !Mod::kBoxIsMask || (Mod::kHasBeside && (Mod::kKeyBeside == Beside::Asks || Mod::kQueryBeside == Beside::Asks ||
                                             Mod::kBothBeside == Beside::Asks));
/// Whether score(), d_score() or mask() are called; these read a Row and positions.
constexpr bool kReadsQueries = Mod::Exponents::kCallsScore || kMayAsk;

/// A step flag next to kStepMasked: mask() must be called. Not set for mods without off-grid tokens, where either all
/// steps call it or none.
constexpr int kStepAsks = 32;
// NOTE: if score() is called anyway, all masked steps call mask(), which is right for all pairs: choosing at run time
// would spill.
ATTNC_DEVICE bool asks_in(int flags) {
  return kMayAsk && (!Mod::kHasBeside || Mod::Exponents::kCallsScore || flags & kStepAsks);
}

/// What all lanes share of a box of queries, whichever keys it sees: RowValues, followed by
///   index   int: the query's position; if HasIndex
///   row     Mod::Row; if kReadsQueries
template <class M, int Rows, bool HasIndex = kReadsQueries> struct QueryRows : RowValues<Rows> {
  using RowValues<Rows>::base;
  static constexpr int kIndex = RowValues<Rows>::kEnd, kRow = kIndex + (HasIndex ? 4 * Rows : 0);
  static constexpr int kEnd = round_up(kRow + (kReadsQueries ? Rows * int(sizeof(Mod::Row)) : 0), 16);

  ATTNC_DEVICE int index(int row) const { return ptx::ld_shared_int(base + kIndex + 4 * row); }
  ATTNC_DEVICE Mod::Row& row(int row) const { return ((Mod::Row*)__cvta_shared_to_generic(base + kRow))[row]; }

  ATTNC_DEVICE void fill(const ModArgs& args, const Mod::Head& head, int b, int h, Token q, int i, bool exists,
                         float lse, float delta) const {
    this->fill_values(i, exists ? weight_bias(lse, 0.f) : negative_infinity(), delta);
    if constexpr (HasIndex) ptx::st_shared(base + kIndex + 4 * i, q.index);
    if constexpr (kReadsQueries) row(i) = M::row(args, head, b, h, q, float(q.index)); // SEAM(row)
  }
};

/// QueryRows followed by bits, for fragments of many queries:
///   live    for each key of the box, a word per 32 queries: a bit for each query that sees the key. Absent in steps in
///           which all see all
template <class M, class Box, int Rows> struct QueryTable : QueryRows<M, Rows> {
  using QueryRows<M, Rows>::base;
  static constexpr int kWords = Rows / 32;
  static_assert(kWords == 2 || kWords == 4, "what a load takes");
  static constexpr int kLive = QueryRows<M, Rows>::kEnd, kBytes = kLive + 4 * kWords * Box::kTokens;

  ATTNC_DEVICE void load_live(int (&words)[kWords], int key) const {
    ptx::ld_shared(words, base + kLive + 4 * kWords * key);
  }
  /// `seen`, `keys`: as in SeenBy. Called by all lanes of a warp.
  ATTNC_DEVICE void fill_live(const unsigned (&seen)[kWords], int keys) const {
    const SeenBy<Box, M::kGridAxes, kWords> by(seen, keys);
#pragma unroll
    for (int key = threadIdx.x % 32; key < Box::kTokens; key += 32) {
      int words[kWords];
      by.find(words, key);
      ptx::st_shared(base + kLive + 4 * kWords * key, words);
    }
  }
};

/// QueryRows for fragments of few queries, where testing each pair is cheaper than words for each key. Followed by
///   seen    KeyBits of each query; 0 if it sees no key of the box
template <class M, class Box, int Rows> struct SeenTable : QueryRows<M, Rows, true> {
  using QueryRows<M, Rows, true>::base;
  static constexpr int kSeen = QueryRows<M, Rows, true>::kEnd, kBytes = round_up(kSeen + 4 * Rows, 16);

  ATTNC_DEVICE int seen(int row) const { return ptx::ld_shared_int(base + kSeen + 4 * row); }
  /// Loads the KeyBits of the lane's two queries of a group of 8.
  ATTNC_DEVICE void load_seen(int (&seen)[2], int n) const {
    ptx::ld_shared(seen, base + kSeen + 4 * Fragment<1, Rows>::column(n, 0));
  }
  ATTNC_DEVICE void fill_seen(int i, unsigned seen) const { ptx::st_shared(base + kSeen + 4 * i, int(seen)); }
};

/// What a lane knows of its keys, rows of a fragment, for one query head: the KvPlace (algo/transposed_scores.cuh) of a
/// box.
template <class M, class Box, int RowGroups = 1> struct KeyPlace {
  using Hooks = M;
  static constexpr int kRows = 2 * RowGroups;
  int b, h;
  int first;        ///< the lane's row 0 among the tokens of the box
  int index[kRows]; ///< of the keys, clamped to the grid or their run
  Mod::Head head;
  Mod::Col col[kRows];
  typename M::Exponents exponents;

  KeyPlace() = default;
  /// `first`: the lane's row 0 among the tokens of the box, or tile of a run, at `origin`.
  template <class Params>
  ATTNC_DEVICE KeyPlace(const Params& p, const ModArgs& args, int b, int h, const int (&origin)[3], int first)
      : b(b), h(h), first(first), head(M::head(args, b, h)),      // SEAM(head)
        exponents(p.base.forward.scale, M::factors(args, head)) { // SEAM(factors)
    const TokensBeside beside = beside_of(p);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      bool exists;
      const Token kv = find_token(Box(), origin, token(r), p.kv_extent, beside.kv, exists);
      index[r] = kv.index;
      col[r] = M::col(args, head, b, h, kv, float(kv.index), 0.f); // SEAM(col)
    }
  }

  /// Returns the token of the box in row r.
  ATTNC_DEVICE int token(int r) const { return first + Fragment<RowGroups, 8>::row_offset(r); }
  ATTNC_DEVICE float kv_float(int r) const { return float(index[r]); }
  template <class Table>
  ATTNC_DEVICE Coord coord(const ForwardParams&, const ModArgs&, Table table, Step, int row, int r) const {
    return {b, h, table.index(row), index[r]};
  }
  /// Whether mask() keeps the key of row r for a query of the step.
  template <class Table> ATTNC_DEVICE bool is_kept(const ModArgs& args, Table table, int row, int r) const {
    return M::mask(args, head, table.row(row), col[r], Coord{b, h, table.index(row), index[r]}); // SEAM(mask)
  }
};

/// Which of a lane's elements live, for groups of 8 queries at a time: masks of packed pairs of 16 bits.
template <class Table> struct LivePairs {
  unsigned even[2][Table::kWords], odd[2][Table::kWords]; // by row; the bit of group n is the highest of its byte

  /// `first`: the key of the lane's row 0, among the keys of the box.
  ATTNC_DEVICE LivePairs(Table table, int first) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      int words[Table::kWords];
      table.load_live(words, first + 8 * r);
#pragma unroll
      for (int i = 0; i < Table::kWords; ++i) {
        const int column = Fragment<1, 8>::first_column();
        even[r][i] = unsigned(words[i]) << (7 - column);
        odd[r][i] = unsigned(words[i]) << (6 - column);
      }
    }
  }
  /// Returns the mask of elements (r, n, 0) and (r, n, 1).
  ATTNC_DEVICE unsigned mask(int r, int n) const {
    const unsigned low = n % 4 | 8, high = n % 4 | 12;
    return ptx::prmt(even[r][n / 4], odd[r][n / 4], low | low << 4 | high << 8 | high << 12);
  }
};

/// Sets weights and rates of dead elements to 0, including queries and keys beyond their grids and runs. Asks: mask()
/// must also be called for each pair.
template <int Begin, int End, bool Asks, class Element, class M, class Box, int Rows>
ATTNC_DEVICE void drop_dead(PackedWeights<Element, Rows>& packed, const ModArgs& args, const KeyPlace<M, Box>& place,
                            QueryTable<M, Box, Rows> table, int first) {
  const LivePairs live(table, first);
#pragma unroll
  for (int n = Begin; n < End; ++n)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      unsigned keep = live.mask(r, n);
      if constexpr (Asks) {
        bool sees[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) sees[e] = place.is_kept(args, table, Fragment<1, Rows>::column(n, e), r);
        keep = keep_halves(keep, sees[0], sees[1]);
      }
      packed.weights.a[0][n / 2][n % 2 * 2 + r] &= keep;
      if constexpr (kHasRates) packed.own_rates.a[0][n / 2][n % 2 * 2 + r] &= keep;
    }
}

/// The same; `asks`: from the step's flags.
template <int Begin, int End, class Element, class M, class Box, int Rows>
ATTNC_DEVICE void drop_dead(PackedWeights<Element, Rows>& packed, const ModArgs& args, const KeyPlace<M, Box>& place,
                            QueryTable<M, Box, Rows> table, int first, bool asks) {
  if (kMayAsk && asks)
    drop_dead<Begin, End, kMayAsk>(packed, args, place, table, first);
  else
    drop_dead<Begin, End, false>(packed, args, place, table, first);
}

/// The same, using KeyBits of the queries.
template <int Begin, int End, class Element, class M, class Box, int RowGroups, int Rows>
ATTNC_DEVICE void drop_dead(PackedWeights<Element, Rows, RowGroups>& packed, const ForwardParams&, const ModArgs& args,
                            const KeyPlace<M, Box, RowGroups>& place, SeenTable<M, Box, Rows> table, Step) {
  unsigned needed[2 * RowGroups]; // KeyBits of the keys
#pragma unroll
  for (int r = 0; r < 2 * RowGroups; ++r) needed[r] = KeyBits<Box>::of(place.token(r));
#pragma unroll
  for (int n = Begin; n < End; ++n) {
    int seen[2];
    table.load_seen(seen, n);
#pragma unroll
    for (int r = 0; r < 2 * RowGroups; ++r) {
      bool live[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        live[e] = !(needed[r] & ~unsigned(seen[e]));
        if constexpr (kMayAsk) live[e] = live[e] && place.is_kept(args, table, Fragment<1, Rows>::column(n, e), r);
      }
      unsigned& weight = packed.weights.a[r / 2][n / 2][n % 2 * 2 + r % 2];
      weight = keep_halves(weight, live[0], live[1]);
      if constexpr (kHasRates) {
        unsigned& rate = packed.own_rates.a[r / 2][n / 2][n % 2 * 2 + r % 2];
        rate = keep_halves(rate, live[0], live[1]);
      }
    }
  }
}

/// Sets gradients of dead elements to 0, whatever V is there. If kMayAsk, these are the elements of rate 0; otherwise
/// `table`, that of their step, says which.
template <int Begin, int End, class Element, class M, class Box, int Rows>
ATTNC_DEVICE void drop_dead(PackedFragment<Element, 1, Rows>& gradients, const PackedFragment<Element, 1, Rows>& rates,
                            QueryTable<M, Box, Rows> table, int first) {
  if constexpr (!kMayAsk) {
    const LivePairs live(table, first);
#pragma unroll
    for (int n = Begin; n < End; ++n)
#pragma unroll
      for (int r = 0; r < 2; ++r) gradients.a[0][n / 2][n % 2 * 2 + r] &= live.mask(r, n);
  } else {
    drop_dead<Begin, End>(gradients, rates);
  }
}

} // namespace attnc
