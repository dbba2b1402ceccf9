// The walk of backward box kernels: a CTA owns a box of keys, and takes boxes of queries from the first query that sees
// some of them, for all query heads of its KV head.
//
// If a mod has off-grid tokens (beside_grid.cuh), a CTA owns a box, or as many keys of a run. Steps over queries of
// runs come after those over boxes.
//
// Params: a kernel's parameters, with BackwardParams `base`, the extents of the grids, q_extent and kv_extent, and
// kv_tiles: boxes of keys along each axis of the grid of keys.
#pragma once

#include "attnc_mod.cuh"

#include "algo/grid_queries.cuh"

namespace attnc {

/// Where a tile of keys lies, by its index among those of a head. Boxes come first, row-major, the last axis fastest;
/// then tiles of runs.
template <class OwnBox> struct OwnPlace {
  int b, head, origin[3]; ///< head: of K and V

  template <class Params> ATTNC_DEVICE OwnPlace(const Params& p, int head_of_all, int tile) {
    b = head_of_all / p.base.forward.kv_heads;
    head = head_of_all % p.base.forward.kv_heads;
    if constexpr (Mod::kHasBeside) {
      const int boxes = p.kv_tiles[0] * p.kv_tiles[1] * p.kv_tiles[2];
      if (tile >= boxes) {
        origin_beside(origin, tile - boxes, beside_of(p).kv, OwnBox::kTokens);
        return;
      }
    }
#pragma unroll
    for (int axis = 2; axis >= 0; --axis) {
      origin[axis] = tile % p.kv_tiles[axis] * OwnBox::extent(axis);
      tile /= p.kv_tiles[axis];
    }
  }
};

/// Returns the queries of which some may see keys of the tile at `own`. Part 0: queries on the grid. Parts 1 and 2:
/// queries of a run, as a range of origins. Called by all lanes of a warp.
template <class OwnBox, class Params>
ATTNC_DEVICE GridRange queries_of_part(const Params& p, const ModArgs& args, const Mod::Head& head, int b, int h,
                                       const OwnPlace<OwnBox>& own, int part) {
  const TokensBeside beside = beside_of(p);
  if (Mod::kHasBeside && part > 0) {
    const int begin[3] = {-part, 0, 0}, tokens = part == 1 ? beside.q[0] : beside.q[1];
    const bool none = said_beside(begin, own.origin) == Beside::None;
    return {{-part, 0, 0}, {1 - part, 1, none ? 0 : tokens}};
  }
  if (is_beside(own.origin)) {
    if (Mod::kKeyBeside == Beside::None) return {};
    return whole_grid(p.q_extent);
  }
  return queries_of(OwnBox(), args, head, b, h, own.origin, p.q_extent, p.kv_extent, beside.q[0]);
}

/// Returns how many query heads walk a box of keys: those that share its KV head, for all batches if K and V are
/// broadcast.
template <class Params> ATTNC_DEVICE int heads_of_box(const Params& p) {
  const ForwardParams& f = p.base.forward;
  return (p.base.kv_batch == f.batch ? 1 : f.batch) * f.group;
}

/// One of these heads.
struct HeadOfBox {
  int b, h;
  Mod::Head head;

  template <class OwnBox, class Params>
  ATTNC_DEVICE HeadOfBox(const Params& p, const ModArgs& args, const OwnPlace<OwnBox>& own, int i)
      : b(own.b + i / p.base.forward.group), h(own.head * p.base.forward.group + i % p.base.forward.group),
        head(Mod::head(args, b, h)) {} // SEAM(head)
};

/// Returns how many boxes cover a range of queries, counted from its beginning; 0 if it is empty.
template <class QueryBox> ATTNC_DEVICE int steps_over(const GridRange& queries) {
  int steps = 1;
#pragma unroll
  for (int axis = 0; axis < 3; ++axis) {
    const int count = max(queries.end[axis] - queries.begin[axis], 0);
    steps *= (count + QueryBox::extent(axis) - 1) / QueryBox::extent(axis);
  }
  return steps;
}

/// Returns in `next` the box behind the one at `at`, the last axis fastest; behind the last box comes the first.
template <class QueryBox> ATTNC_DEVICE void step_behind(const int (&at)[3], const GridRange& queries, int (&next)[3]) {
  bool moves = true; // along this axis
#pragma unroll
  for (int axis = 2; axis >= 0; --axis) {
    next[axis] = at[axis] + (moves ? QueryBox::extent(axis) : 0);
    moves = next[axis] >= queries.end[axis];
    if (moves) next[axis] = queries.begin[axis];
  }
}

/// Calls step(head, b, h, at) for each box of queries of which some see keys of the tile at `own`, and for each tile of
/// a run of which some may. Called by all lanes of a warp.
template <class QueryBox, class OwnBox, class Params, class Function>
ATTNC_DEVICE void for_each_step(const Params& p, const ModArgs& args, const OwnPlace<OwnBox>& own, Function step) {
  const int heads = heads_of_box(p);
#pragma unroll 1
  for (int i = 0; i < heads; ++i) {
    const HeadOfBox of(p, args, own, i);
#pragma unroll 1
    for (int part = 0; part < (Mod::kHasBeside ? 3 : 1); ++part) {
      const GridRange queries = queries_of_part(p, args, of.head, of.b, of.h, own, part);
      const bool is_box = part == 0;
      const int by[3] = {is_box ? QueryBox::extent(0) : 1, is_box ? QueryBox::extent(1) : 1,
                         is_box ? QueryBox::extent(2) : QueryBox::kTokens};
      int at[3];
#pragma unroll 1
      for (at[0] = queries.begin[0]; at[0] < queries.end[0]; at[0] += by[0])
#pragma unroll 1
        for (at[1] = queries.begin[1]; at[1] < queries.end[1]; at[1] += by[1])
#pragma unroll 1
          for (at[2] = queries.begin[2]; at[2] < queries.end[2]; at[2] += by[2]) step(of.head, of.b, of.h, at);
    }
  }
}

} // namespace attnc
