// What the mma.sync kernels share whose CTAs own boxes of queries: the boxes of keys that a CTA walks, which of these a
// warp needs, and how a warp stores rows of a box.
#pragma once

#include "attnc_mod.cuh"

#include "algo/grid_tiles.cuh"
#include "tile/copy_box.cuh"
#include "tile/fragment.cuh"
#include "tile/store_packed.cuh"

namespace attnc::grid {

/// Returns a box that covers what the queries of the warp see. Called by all lanes.
ATTNC_DEVICE GridRange seen_by_warp(const GridPlace& place) {
  GridRange seen;
#pragma unroll
  for (int axis = 0; axis < 3; ++axis) seen.begin[axis] = kMaxExtent, seen.end[axis] = 0;
#pragma unroll
  for (int r = 0; r < 2; ++r)
    if (place.exists[r] && !place.keys[r].is_empty())
#pragma unroll
      for (int axis = 0; axis < 3; ++axis) {
        seen.begin[axis] = min(seen.begin[axis], place.keys[r].begin[axis]);
        seen.end[axis] = max(seen.end[axis], place.keys[r].end[axis]);
      }
#pragma unroll
  for (int axis = 0; axis < 3; ++axis) {
    seen.begin[axis] = __reduce_min_sync(0xffffffffu, seen.begin[axis]);
    seen.end[axis] = __reduce_max_sync(0xffffffffu, seen.end[axis]);
  }
  return seen;
}

/// Whether a box of keys has a key in `seen`.
template <class KeyShape> ATTNC_DEVICE bool meets(KeyShape, const GridRange& seen, const int (&origin)[3]) {
  bool meets = true;
#pragma unroll
  for (int axis = 0; axis < 3; ++axis)
    meets &= origin[axis] < seen.end[axis] && seen.begin[axis] < origin[axis] + KeyShape::extent(axis);
  return meets;
}

/// The boxes of keys of a tile, one after the other: those that cover what some query sees.
template <class Tiles, class KeyShape> struct SeenWalk {
  const typename Tiles::Plan& plan;

  ATTNC_DEVICE int steps() const { return plan.count[0] * plan.count[1] * plan.count[2]; }
  ATTNC_DEVICE void begin(int (&origin)[3]) const {
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) origin[axis] = plan.begin[axis];
  }
  /// Moves on from the box of the step before.
  ATTNC_DEVICE void advance(int (&origin)[3], int) const {
#pragma unroll
    for (int axis = 2; axis >= 0; --axis) {
      origin[axis] += KeyShape::extent(axis);
      if (axis == 0 || origin[axis] < plan.begin[axis] + plan.count[axis] * KeyShape::extent(axis)) return;
      origin[axis] = plan.begin[axis];
    }
  }
  ATTNC_DEVICE bool is_full(int) const { return false; }
};

/// Stores a warp's 16 rows times `factor`, tokens of the box at `origin` from `first` on, staged in `rows`.
template <class Box, class Element, int Columns, int N>
ATTNC_DEVICE void store_tokens(Box, PaddedTile<Element, 16, Columns> rows, const Fragment<1, N>& from, float factor,
                               Element* to, long long row_stride, const int (&origin)[3], int first,
                               const int (&extent)[3], bool vectors) {
  mma::write_scaled(rows, 0, 0, from, factor);
  __syncwarp();
  BoxTokens<Element, Box, 16, 32, Columns> tokens;
  tokens.look(first, origin, extent);
  tokens.copy_out(rows, to, row_stride, vectors);
}

} // namespace attnc::grid
