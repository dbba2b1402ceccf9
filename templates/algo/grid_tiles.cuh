// Tiles of the forward box kernels: where the queries of a CTA lie, and which boxes of keys cover what they see.
//
// The consumers' boxes of queries lie side by side along one axis, SplitAxis, and form the CTA's box. Boxes of keys
// begin at the first key that some query of the CTA sees. A consumer needs only those boxes whose places along
// SplitAxis its own queries see.
//
// A tile of off-grid queries is as many tokens of a run, consumer after consumer. A tile visits off-grid keys before
// the boxes.
#pragma once

#include "algo/grid_box.cuh"
#include "algo/tile_order.cuh"

namespace attnc {

/// QueryShape: of a consumer, a multiple of 32 tokens. KeyShape: of a step. Params: as in grid_box.cuh, plus q_tiles:
/// boxes of a CTA along each axis.
template <class QueryShape, class KeyShape, int SplitAxis = 2, int Consumers = 1> struct GridTiles {
  /// A tile of queries, and what they see on the grid of keys.
  struct Plan {
    int head;      // b * q_heads + h; -1: no more work
    int origin[3]; // of the CTA's box of queries, or of a tile of a run
    int begin[3];  // of the first box of keys
    int count[3];  // boxes of keys along each axis; at least 1, or 0 for tiles with steps over runs only
    int first[Consumers], last[Consumers]; // of these, along SplitAxis: what a consumer's queries see
  };

  /// Moves from the origin of the CTA's queries to that of a consumer's.
  ATTNC_DEVICE static void move_to(int (&origin)[3], int consumer) {
    if (is_beside(origin)) {
      origin[2] += consumer * QueryShape::kTokens;
      return;
    }
#pragma unroll
    for (int axis = 0; axis < 3; ++axis)
      if (axis == SplitAxis) origin[axis] += consumer * QueryShape::extent(axis);
  }

  /// Sets the origin of a CTA's box of queries.
  template <class Params> ATTNC_DEVICE static void origin_of(const Params& p, int tile, int (&origin)[3]) {
#pragma unroll
    for (int axis = 2; axis >= 0; --axis) {
      origin[axis] = tile % p.q_tiles[axis] * QueryShape::extent(axis) * (axis == SplitAxis ? Consumers : 1);
      tile /= p.q_tiles[axis];
    }
  }

  /// Returns how many steps over off-grid keys a tile takes: the first run's, then the second run's.
  template <class Params> ATTNC_DEVICE static int steps_beside(const Params& p, const int (&origin)[3]) {
    const Beside seen = is_beside(origin) ? Mod::kBothBeside : Mod::kKeyBeside;
    if (!Mod::kHasBeside || seen == Beside::None) return 0;
    return tiles_beside(beside_of(p).kv, KeyShape::kTokens);
  }

  /// Sets the origin of a step over off-grid keys.
  template <class Params> ATTNC_DEVICE static void step_beside(const Params& p, int step, int (&origin)[3]) {
    origin_beside(origin, step, beside_of(p).kv, KeyShape::kTokens);
  }

  /// Returns a box of keys that covers what the queries of a consumer's box see. Called by all lanes.
  template <class Params>
  ATTNC_DEVICE static GridRange seen_by(const Params& p, const ModArgs& args, const Mod::Head& head, int b, int h,
                                        const int (&origin)[3]) {
    GridRange all;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) all.begin[axis] = kMaxExtent, all.end[axis] = 0;
#pragma unroll
    for (int i = 0; i < QueryShape::kTokens / 32; ++i) {
      int x[3];
      bool exists = true;
#pragma unroll
      for (int axis = 0; axis < 3; ++axis) {
        x[axis] = origin[axis] + QueryShape::coordinate(threadIdx.x % 32 + 32 * i, axis);
        exists &= x[axis] < p.q_extent[axis];
        x[axis] = min(x[axis], p.q_extent[axis] - 1);
      }
      const GridRange keys = keys_of(args, head, b, h, token_at(x, p.q_extent, beside_of(p).q[0]), p.kv_extent);
      if (!exists || keys.is_empty()) continue;
#pragma unroll
      for (int axis = 0; axis < 3; ++axis) {
        all.begin[axis] = min(all.begin[axis], keys.begin[axis]);
        all.end[axis] = max(all.end[axis], keys.end[axis]);
      }
    }
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
      all.begin[axis] = __reduce_min_sync(0xffffffffu, all.begin[axis]);
      all.end[axis] = __reduce_max_sync(0xffffffffu, all.end[axis]);
    }
    return all;
  }

  /// Plans a tile of off-grid queries.
  template <class Params> ATTNC_DEVICE static Plan plan_beside(const Params& p, int head, int tile) {
    Plan plan;
    plan.head = head;
    origin_beside(plan.origin, tile, beside_of(p).q, Consumers * QueryShape::kTokens);
    const bool none = Mod::kQueryBeside == Beside::None, others = steps_beside(p, plan.origin) > 0;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) { // all keys; if none is seen, a step behind the end, as below
      plan.begin[axis] = none ? p.kv_extent[axis] : 0;
      plan.count[axis] = none ? !others : (p.kv_extent[axis] + KeyShape::extent(axis) - 1) / KeyShape::extent(axis);
    }
#pragma unroll
    for (int i = 0; i < Consumers; ++i) plan.first[i] = 0, plan.last[i] = plan.count[SplitAxis] - 1;
    return plan;
  }

  /// Plans the tile at a place of the tile order. Called by all lanes of a warp.
  template <class Params> ATTNC_DEVICE static Plan plan(const Params& p, const ModArgs& args, const TilePlace& tile) {
    if constexpr (Mod::kHasBeside) {
      const int boxes = p.q_tiles[0] * p.q_tiles[1] * p.q_tiles[2];
      if (tile.q_tile >= boxes) return plan_beside(p, tile.head, tile.q_tile - boxes);
    }
    const int b = tile.head / p.base.q_heads, h = tile.head % p.base.q_heads;
    Plan plan;
    plan.head = tile.head;
    origin_of(p, tile.q_tile, plan.origin);
    const Mod::Head head = Mod::head(args, b, h); // SEAM(head)
    GridRange all;
#pragma unroll
    for (int i = 0; i < Consumers; ++i) {
      int x[3] = {plan.origin[0], plan.origin[1], plan.origin[2]};
      move_to(x, i);
      const GridRange seen = seen_by(p, args, head, b, h, x);
      plan.first[i] = seen.begin[SplitAxis], plan.last[i] = seen.end[SplitAxis] - 1;
#pragma unroll
      for (int axis = 0; axis < 3; ++axis) {
        all.begin[axis] = i ? min(all.begin[axis], seen.begin[axis]) : seen.begin[axis];
        all.end[axis] = i ? max(all.end[axis], seen.end[axis]) : seen.end[axis];
      }
    }
    const bool none = all.is_empty(); // then a step behind the end, so that rows come out as fully masked
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
      if (none) all.begin[axis] = all.end[axis] = p.kv_extent[axis];
      plan.begin[axis] = all.begin[axis];
      plan.count[axis] =
          max((all.end[axis] - all.begin[axis] + KeyShape::extent(axis) - 1) / KeyShape::extent(axis), 1);
    }
#pragma unroll
    for (int i = 0; i < Consumers; ++i) { // a consumer that sees nothing still takes the first of these
      const bool sees = plan.first[i] <= plan.last[i] && !none;
      plan.first[i] = sees ? (plan.first[i] - all.begin[SplitAxis]) / KeyShape::extent(SplitAxis) : 0;
      plan.last[i] = sees ? (plan.last[i] - all.begin[SplitAxis]) / KeyShape::extent(SplitAxis) : 0;
    }
    return plan;
  }
};

} // namespace attnc
