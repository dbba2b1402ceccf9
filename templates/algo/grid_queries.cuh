// A box of keys seen from the other side: which queries see some of it, and which of its keys each of them sees. For kernels
// whose tiles own boxes of keys and walk boxes of queries (backward).
//
// Bounds of axis a depend on the coordinate of the query along that axis alone (src/passes/grid_kernel.h says so of the mod).
// So the queries that see some of a box lie in a box, too; and what a query sees of a box is a bit for each coordinate along
// each axis: 8 + 16 bits for 8 x 16 keys. A key is seen where its bit of each axis is set.
#pragma once

#include "attnc_mod.cuh"

#include "algo/grid_box.cuh"
#include "algo/transposed_scores.cuh"

namespace attnc {

/// Coordinates of a box of keys as bits of a word, those of axis 0 first.
template <class Box> struct KeyBits {
  static constexpr int kCount = Box::extent(0) + Box::extent(1) + Box::extent(2);
  static_assert(kCount <= 32, "a bit for each coordinate");
  static constexpr unsigned kAll = kCount == 32 ? ~0u : (1u << kCount % 32) - 1;
  ATTNC_DEVICE static constexpr int first(int axis) {
    return axis == 0 ? 0 : axis == 1 ? Box::extent(0) : Box::extent(0) + Box::extent(1);
  }

  /// What of the box at `origin` lies in a range of keys.
  ATTNC_DEVICE static unsigned within(const GridRange& keys, const int (&origin)[3]) {
    unsigned word = 0;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
      const int begin = keys.begin[axis] - origin[axis], end = min(keys.end[axis] - origin[axis], Box::extent(axis));
      word |= bits_between(begin, end) << first(axis);
    }
    return word;
  }
  /// What must be set where key `token` of the box is seen.
  ATTNC_DEVICE static unsigned of(int token) {
    unsigned word = 0;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) word |= 1u << (first(axis) + Box::coordinate(token, axis));
    return word;
  }
};

/// The queries of which some may see keys of a box: a box, or none. All lanes of a warp.
template <class KeyBox>
ATTNC_DEVICE GridRange queries_of(KeyBox, const ModArgs& args, const Mod::Head& head, int b, int h, const int (&origin)[3],
                                  const int (&q_extent)[3], const int (&kv_extent)[3]) {
  GridRange queries;
#pragma unroll
  for (int axis = 0; axis < 3; ++axis) {
    int begin = kMaxExtent, end = 0;
#pragma unroll 1
    for (int x = threadIdx.x % 32; x < q_extent[axis]; x += 32) {
      const int at[3] = {axis == 0 ? x : 0, axis == 1 ? x : 0, axis == 2 ? x : 0};
      const GridRange keys = keys_of(args, head, b, h, token_at(at, q_extent), kv_extent);
      if (keys.begin[axis] >= origin[axis] + KeyBox::extent(axis) || keys.end[axis] <= max(origin[axis], keys.begin[axis])) continue;
      begin = min(begin, x), end = x + 1;
    }
    queries.begin[axis] = __reduce_min_sync(0xffffffffu, begin);
    queries.end[axis] = __reduce_max_sync(0xffffffffu, end);
  }
  return queries;
}

/// What all lanes share of a box of queries: RowValues, and behind these
///   seen    unsigned: KeyBits of the keys that the query sees, 0 for queries beyond the grid
///   index   int: the query's position; where kReadsQueries
///   row     Mod::Row; likewise
constexpr bool kReadsQueries = Mod::Exponents::kCallsScore || !Mod::kBoxIsMask;
template <class M, int Rows> struct QueryTable : RowValues<Rows> {
  using RowValues<Rows>::base;
  static constexpr int kSeen = RowValues<Rows>::kEnd, kIndex = kSeen + 4 * Rows;
  static constexpr int kRow = kIndex + (kReadsQueries ? 4 * Rows : 0);
  static constexpr int kBytes = round_up(kRow + (kReadsQueries ? Rows * int(sizeof(Mod::Row)) : 0), 16);

  /// Of the two rows (n, 0) and (n, 1) of a lane.
  ATTNC_DEVICE uint2 seen(int n) const {
    int x[2];
    ptx::ld_shared(x, base + kSeen + 4 * Fragment<1, Rows>::column(n, 0));
    return {unsigned(x[0]), unsigned(x[1])};
  }
  ATTNC_DEVICE int index(int row) const { return ptx::ld_shared_int(base + kIndex + 4 * row); }
  ATTNC_DEVICE Mod::Row& row(int row) const { return ((Mod::Row*)__cvta_shared_to_generic(base + kRow))[row]; }

  ATTNC_DEVICE void fill(const ModArgs& args, const Mod::Head& head, int b, int h, Token q, int i, bool exists, unsigned seen,
                         float lse, float delta) const {
    this->fill_values(i, exists ? weight_bias(lse, 0.f) : negative_infinity(), delta);
    ptx::st_shared(base + kSeen + 4 * i, int(seen));
    if constexpr (kReadsQueries) {
      ptx::st_shared(base + kIndex + 4 * i, q.index);
      row(i) = M::row(args, head, b, h, q, float(q.index)); // SEAM(row)
    }
  }
};

/// What a lane knows of its two keys, rows of a fragment, for one query head: KvPlace (algo/transposed_scores.cuh) of a box.
template <class M, class Box> struct KeyPlace {
  using Hooks = M;
  int b, h;
  int index[2];     ///< of the keys, inside the grid
  unsigned bits[2]; ///< KeyBits
  Mod::Head head;
  Mod::Col col[2];
  typename M::Exponents exponents;

  KeyPlace() = default;
  /// `first`: the lane's row 0 among the box's tokens.
  ATTNC_DEVICE KeyPlace(const ForwardParams& p, const ModArgs& args, int b, int h, const int (&origin)[3], int first,
                        const int (&extent)[3])
      : b(b), h(h), head(M::head(args, b, h)), exponents(p.scale, M::factors(args, head)) { // SEAM(head) SEAM(factors)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int token = first + 8 * r;
      const int x[3] = {min(origin[0] + Box::coordinate(token, 0), extent[0] - 1),
                        min(origin[1] + Box::coordinate(token, 1), extent[1] - 1),
                        min(origin[2] + Box::coordinate(token, 2), extent[2] - 1)};
      const Token kv = token_at(x, extent);
      index[r] = kv.index;
      bits[r] = KeyBits<Box>::of(token);
      col[r] = M::col(args, head, b, h, kv, float(kv.index), 0.f); // SEAM(col)
    }
  }

  ATTNC_DEVICE float kv_float(int r) const { return float(index[r]); }
  template <class Table> ATTNC_DEVICE Coord coord(const ForwardParams&, const ModArgs&, Table table, Step, int row, int r) const {
    return {b, h, table.index(row), index[r]};
  }
};

/// Sets weights and rates of dead elements to 0, those of queries and keys beyond their grids included.
template <int Begin, int End, class Element, class M, class Box, int Rows>
ATTNC_DEVICE void drop_dead(PackedWeights<Element, Rows>& packed, const ModArgs& args, const KeyPlace<M, Box>& place,
                            QueryTable<M, Rows> table) {
#pragma unroll
  for (int n = Begin; n < End; ++n) {
    const uint2 seen = table.seen(n);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      bool live[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        live[e] = ((e ? seen.y : seen.x) & place.bits[r]) == place.bits[r];
        if constexpr (!M::kBoxIsMask) {
          const int row = Fragment<1, Rows>::column(n, e);
          live[e] = live[e] && M::mask(args, place.head, table.row(row), place.col[r], // SEAM(mask)
                                       Coord{place.b, place.h, table.index(row), place.index[r]});
        }
      }
      unsigned& weight = packed.weights.a[0][n / 2][n % 2 * 2 + r];
      weight = keep_halves(weight, live[0], live[1]);
      if constexpr (kHasRates) {
        unsigned& rate = packed.own_rates.a[0][n / 2][n % 2 * 2 + r];
        rate = keep_halves(rate, live[0], live[1]);
      }
    }
  }
}

} // namespace attnc
