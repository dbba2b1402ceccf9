// A box of keys seen from the other side: which queries see some of it, and which of its keys each of them sees. For
// kernels whose tiles own boxes of keys and walk boxes of queries (backward).
//
// Bounds of axis a depend only on the query's coordinate along that axis: GridKernel::isSeparable. So the queries that
// see some of a box form a box. And what a query sees of a box is one bit for each coordinate along each axis: 8 + 16
// bits for 8 x 16 keys. A query sees a key if the key's bits of all axes are set. Which queries of a step see which key
// is computed once for all lanes, a bit for each query.
//
// For off-grid queries or keys (beside_grid.cuh), the mod says for all their pairs whether these live, or mask_mod is
// called for each.
#pragma once

#include "attnc_mod.cuh"

#include "algo/grid_box.cuh"

namespace attnc {

/// Coordinates of a box of keys as bits of a word, axis 0 first.
template <class Box> struct KeyBits {
  static constexpr int kCount = Box::extent(0) + Box::extent(1) + Box::extent(2);
  static_assert(kCount <= 32, "a bit for each coordinate");
  static constexpr unsigned kAll = kCount == 32 ? ~0u : (1u << kCount % 32) - 1;
  ATTNC_DEVICE static constexpr int first(int axis) {
    return axis == 0 ? 0 : axis == 1 ? Box::extent(0) : Box::extent(0) + Box::extent(1);
  }

  /// Returns the bits of a token of the box. The token is seen if all of them are set.
  ATTNC_DEVICE static unsigned of(int token) {
    unsigned word = 0;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) word |= 1u << (first(axis) + Box::coordinate(token, axis));
    return word;
  }
  /// Whether some token has all of its bits in the word.
  ATTNC_DEVICE static bool has_some(unsigned word) {
    bool has = true;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) has &= (word >> first(axis) & ((1ull << Box::extent(axis)) - 1)) != 0;
    return has;
  }
  /// Returns the part of the box at `origin` that lies in a range of keys. For keys of a run, all bits are set.
  ATTNC_DEVICE static unsigned within(const GridRange& keys, const int (&origin)[3]) {
    if (is_beside(origin)) return kAll;
    unsigned word = 0;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
      const int begin = keys.begin[axis] - origin[axis], end = min(keys.end[axis] - origin[axis], Box::extent(axis));
      word |= bits_between(begin, end) << first(axis);
    }
    return word;
  }
};

/// Which of 32 Words queries see a key. A lane holds `seen`, the KeyBits of queries lane + 32 i. Called by all lanes of
/// a warp. `keys`: how many keys of a run's tile exist.
template <class Box, int Axes, int Words> struct SeenBy {
  unsigned of_bit[Words]; // the queries that have bit `lane`
  int keys;

  ATTNC_DEVICE SeenBy(const unsigned (&seen)[Words], int keys) : keys(keys) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int bit = 0; bit < KeyBits<Box>::kCount; ++bit)
#pragma unroll
      for (int i = 0; i < Words; ++i) {
        const unsigned queries = __ballot_sync(0xffffffffu, seen[i] >> bit & 1);
        of_bit[i] = bit == 0 || lane == bit ? queries : of_bit[i];
      }
  }
  /// Sets a bit for each query that sees `key`. Lanes may pass different keys.
  ATTNC_DEVICE void find(int (&words)[Words], int key) const {
#pragma unroll
    for (int i = 0; i < Words; ++i) words[i] = ~0;
#pragma unroll
    for (int axis = 3 - Axes; axis < 3; ++axis)
#pragma unroll
      for (int i = 0; i < Words; ++i)
        words[i] &= int(__shfl_sync(0xffffffffu, of_bit[i], KeyBits<Box>::first(axis) + Box::coordinate(key, axis)));
    if (Mod::kHasBeside && key >= keys)
#pragma unroll
      for (int& word : words) word = 0;
  }
};

/// Returns what mask_mod says of two tiles of which at most one lies on its grid.
ATTNC_DEVICE Beside said_beside(const int (&queries)[3], const int (&keys)[3]) {
  if (is_beside(keys)) return is_beside(queries) ? Mod::kBothBeside : Mod::kKeyBeside;
  return Mod::kQueryBeside;
}
/// Whether mask_mod must be called for each pair of two tiles, on or off their grids.
ATTNC_DEVICE bool asks_pairs(const int (&queries)[3], const int (&keys)[3]) {
  if (is_beside(queries) || is_beside(keys)) return said_beside(queries, keys) == Beside::Asks;
  return !Mod::kBoxIsMask;
}

/// Returns the box of on-grid queries of which some may see keys of a box; empty if none does. `before`: off-grid
/// queries in front of the grid. Called by all lanes of a warp.
template <class KeyBox>
ATTNC_DEVICE GridRange queries_of(KeyBox, const ModArgs& args, const Mod::Head& head, int b, int h,
                                  const int (&origin)[3], const int (&q_extent)[3], const int (&kv_extent)[3],
                                  int before) {
  GridRange queries;
#pragma unroll
  for (int axis = 0; axis < 3; ++axis) {
    int begin = kMaxExtent, end = 0;
#pragma unroll 1
    for (int x = threadIdx.x % 32; x < q_extent[axis]; x += 32) {
      const int at[3] = {axis == 0 ? x : 0, axis == 1 ? x : 0, axis == 2 ? x : 0};
      const GridRange keys = keys_of(args, head, b, h, token_at(at, q_extent, before), kv_extent);
      if (keys.begin[axis] >= origin[axis] + KeyBox::extent(axis) ||
          keys.end[axis] <= max(origin[axis], keys.begin[axis]))
        continue;
      begin = min(begin, x), end = x + 1;
    }
    queries.begin[axis] = __reduce_min_sync(0xffffffffu, begin);
    queries.end[axis] = __reduce_max_sync(0xffffffffu, end);
  }
  return queries;
}

} // namespace attnc
