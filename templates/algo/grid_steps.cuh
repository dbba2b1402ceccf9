// What backward kernels by boxes of a grid walk: a CTA owns a box of keys, and takes boxes of queries from the first
// query on that sees some of them, of all query heads of its KV head.
//
// Params: of a kernel, with `base`, its BackwardParams, the extents of the grids, q_extent and kv_extent, and kv_tiles:
// boxes of keys that the grid of keys takes along each axis.
#pragma once

#include "attnc_mod.cuh"

#include "algo/grid_queries.cuh"

namespace attnc {

/// Where a box of keys lies, by its index among those of a head: row-major, the last axis fastest.
template <class OwnBox> struct OwnPlace {
  int b, head, origin[3]; ///< head: of K and V

  template <class Params> ATTNC_DEVICE OwnPlace(const Params& p, int head_of_all, int box) {
    b = head_of_all / p.base.forward.kv_heads;
    head = head_of_all % p.base.forward.kv_heads;
#pragma unroll
    for (int axis = 2; axis >= 0; --axis) {
      origin[axis] = box % p.kv_tiles[axis] * OwnBox::extent(axis);
      box /= p.kv_tiles[axis];
    }
  }
};

/// Calls step(head, b, h, at) for each box of queries of which some see keys of the box at `own`. All lanes of a warp.
template <class QueryBox, class OwnBox, class Params, class Function>
ATTNC_DEVICE void for_each_step(const Params& p, const ModArgs& args, const OwnPlace<OwnBox>& own, Function step) {
  const ForwardParams& f = p.base.forward;
  const int heads = (p.base.kv_batch == f.batch ? 1 : f.batch) * f.group;
#pragma unroll 1
  for (int i = 0; i < heads; ++i) {
    const int b = own.b + i / f.group, h = own.head * f.group + i % f.group;
    const Mod::Head head = Mod::head(args, b, h); // SEAM(head)
    const GridRange queries = queries_of(OwnBox(), args, head, b, h, own.origin, p.q_extent, p.kv_extent);
    int at[3];
#pragma unroll 1
    for (at[0] = queries.begin[0]; at[0] < queries.end[0]; at[0] += QueryBox::extent(0))
#pragma unroll 1
      for (at[1] = queries.begin[1]; at[1] < queries.end[1]; at[1] += QueryBox::extent(1))
#pragma unroll 1
        for (at[2] = queries.begin[2]; at[2] < queries.end[2]; at[2] += QueryBox::extent(2)) step(head, b, h, at);
  }
}

} // namespace attnc
