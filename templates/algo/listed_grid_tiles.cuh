// Tiles of box kernels with a block mask: the live boxes of keys for a CTA's box of queries.
//
// Blocks of the mask are boxes of lattices that begin at the first token of a grid, row-major. The lattice of queries
// has the CTAs' boxes, that of keys the steps' boxes (box_mask.cu). All queries of a CTA take all boxes of its list.
#pragma once

#include "algo/grid_tiles.cuh"
#include "algo/step_walk.cuh"

namespace attnc {

/// The part of GridTiles that does not depend on keys. All tokens lie on the grids.
template <class QueryShape, class KeyShape, int SplitAxis = 2, int Consumers = 1>
struct ListedGridTiles : GridTiles<QueryShape, KeyShape, SplitAxis, Consumers> {
  /// A tile of queries.
  struct Plan {
    int head;      // b * q_heads + h; -1: no more work
    int origin[3]; // of the CTA's box of queries
    int tile;      // index of that box
  };

  template <class Params> ATTNC_DEVICE static Plan plan(const Params& p, const ModArgs&, const TilePlace& tile) {
    Plan plan;
    plan.head = tile.head;
    plan.tile = tile.q_tile;
    ListedGridTiles::origin_of(p, tile.q_tile, plan.origin);
    return plan;
  }
};

/// The steps of a tile over listed boxes of keys, partial ones first. A tile with no box takes one step behind the end,
/// so that its rows come out as fully masked.
template <class KeyShape> struct ListedBoxes {
  BlockRow row;

  template <class Params>
  ATTNC_DEVICE ListedBoxes(const Params& p, int b, int h, int tile)
      : row(p.base.lists, b, h, tile, KeyShape::kTokens) {}

  ATTNC_DEVICE int steps() const { return max(row.partial_count + row.full_count, 1); }
  /// Whether mask_mod is true for all of a step.
  ATTNC_DEVICE bool is_full(int step) const { return step >= row.partial_count && row.full_count > 0; }

  template <class Params> ATTNC_DEVICE void origin_of(const Params& p, int step, int (&origin)[3]) const {
    const bool none = row.partial_count + row.full_count == 0;
    int box = none ? 0 : is_full(step) ? row.full_index[step - row.partial_count] : row.partial_index[step];
#pragma unroll
    for (int axis = 2; axis >= 0; --axis) {
      const int along = (p.kv_extent[axis] + KeyShape::extent(axis) - 1) / KeyShape::extent(axis);
      origin[axis] = none ? p.kv_extent[axis] : box % along * KeyShape::extent(axis);
      box /= along;
    }
  }
};

} // namespace attnc
