// A box of keys seen from the other side: which queries see some of it, and which of its keys each of them sees. For
// kernels whose tiles own boxes of keys and walk boxes of queries (backward).
//
// Bounds of axis a depend on the coordinate of the query along that axis alone (src/passes/grid_kernel.h says so of the
// mod). So the queries that see some of a box lie in a box, too; and what a query sees of a box is a bit for each
// coordinate along each axis: 8 + 16 bits for 8 x 16 keys. A key is seen where its bit of each axis is set: which
// queries of a step see it is put together once for all lanes, a bit for each.
//
// Where a query or a key lies beside its grid (beside_grid.cuh), the mod says for all such pairs whether they live, or
// mask_mod is asked of each.
#pragma once

#include "attnc_mod.cuh"

#include "algo/grid_box.cuh"

namespace attnc {

/// Coordinates of a box of keys as bits of a word, those of axis 0 first.
template <class Box> struct KeyBits {
  static constexpr int kCount = Box::extent(0) + Box::extent(1) + Box::extent(2);
  static_assert(kCount <= 32, "a bit for each coordinate");
  static constexpr unsigned kAll = kCount == 32 ? ~0u : (1u << kCount % 32) - 1;
  ATTNC_DEVICE static constexpr int first(int axis) {
    return axis == 0 ? 0 : axis == 1 ? Box::extent(0) : Box::extent(0) + Box::extent(1);
  }

  /// Of a token of the box: it lies where all of its bits do.
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
  /// What of the box at `origin` lies in a range of keys. Keys of a run have all bits.
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

/// Of 32 Words queries, of which a lane of a warp has `seen`, KeyBits, of lane + 32 i: which of them see a key. All
/// lanes. `keys`: as many of a tile of a run are there.
template <class Box, int Axes, int Words> struct SeenBy {
  unsigned of_bit[Words]; // which queries have bit `lane`
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
  /// A bit for each query. Lanes may ask for different keys.
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

/// What mask_mod says of queries and keys of two tiles of which not both lie on their grids.
ATTNC_DEVICE Beside said_beside(const int (&queries)[3], const int (&keys)[3]) {
  if (is_beside(keys)) return is_beside(queries) ? Mod::kBothBeside : Mod::kKeyBeside;
  return Mod::kQueryBeside;
}
/// Whether mask_mod is to be asked of each of their pairs, wherever they lie.
ATTNC_DEVICE bool asks_pairs(const int (&queries)[3], const int (&keys)[3]) {
  if (is_beside(queries) || is_beside(keys)) return said_beside(queries, keys) == Beside::Asks;
  return !Mod::kBoxIsMask;
}

/// The queries on the grid, behind as many others, of which some may see keys of a box: a box, or none. All lanes of a
/// warp.
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
