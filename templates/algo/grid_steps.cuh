// What backward kernels by boxes of a grid walk: a CTA owns a box of keys, and takes boxes of queries from the first
// query on that sees some of them, of all query heads of its KV head.
//
// Of mods that mean tokens beside their grids (beside_grid.cuh), it owns a box, or as many keys of a run; steps over
// queries of runs come behind those over boxes.
//
// Params: of a kernel, with `base`, its BackwardParams, the extents of the grids, q_extent and kv_extent, and kv_tiles:
// boxes of keys that the grid of keys takes along each axis.
#pragma once

#include "attnc_mod.cuh"

#include "algo/grid_queries.cuh"

namespace attnc {

/// Where a tile of keys lies, by its index among those of a head: boxes, row-major, the last axis fastest; then tiles
/// of runs.
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

/// The queries of which some may see keys of the tile at `own`: part 0, on the grid; parts 1 and 2, of a run, their
/// range being one of origins. All lanes of a warp.
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

/// Calls step(head, b, h, at) for each box of queries of which some see keys of the tile at `own`, and for each tile of
/// a run of which some may. All lanes of a warp.
template <class QueryBox, class OwnBox, class Params, class Function>
ATTNC_DEVICE void for_each_step(const Params& p, const ModArgs& args, const OwnPlace<OwnBox>& own, Function step) {
  const ForwardParams& f = p.base.forward;
  const int heads = (p.base.kv_batch == f.batch ? 1 : f.batch) * f.group;
#pragma unroll 1
  for (int i = 0; i < heads; ++i) {
    const int b = own.b + i / f.group, h = own.head * f.group + i % f.group;
    const Mod::Head head = Mod::head(args, b, h); // SEAM(head)
#pragma unroll 1
    for (int part = 0; part < (Mod::kHasBeside ? 3 : 1); ++part) {
      const GridRange queries = queries_of_part(p, args, head, b, h, own, part);
      const bool is_box = part == 0;
      const int by[3] = {is_box ? QueryBox::extent(0) : 1, is_box ? QueryBox::extent(1) : 1,
                         is_box ? QueryBox::extent(2) : QueryBox::kTokens};
      int at[3];
#pragma unroll 1
      for (at[0] = queries.begin[0]; at[0] < queries.end[0]; at[0] += by[0])
#pragma unroll 1
        for (at[1] = queries.begin[1]; at[1] < queries.end[1]; at[1] += by[1])
#pragma unroll 1
          for (at[2] = queries.begin[2]; at[2] < queries.end[2]; at[2] += by[2]) step(head, b, h, at);
    }
  }
}

} // namespace attnc
