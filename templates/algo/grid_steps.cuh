// The walk of backward box kernels: a CTA owns a box of keys, and takes boxes of queries from the first query that sees
// some of them, for all query heads of its KV head.
//
// If a mod has off-grid tokens (beside_grid.cuh), a CTA owns a box, or as many keys of a run. Steps over queries of
// runs come after those over boxes.
//
// If equal launches must give equal bits, boxes of queries are cells of a lattice that begins at the grid's first
// query. Tiles of keys add their dQ to a cell in turns, from the last tile on: the order in which CTAs take the tiles
// of a head. A CTA only waits for tiles that were taken before its own: the first one is taken when the CTA runs. Boxes
// walk cells forwards, and so stay behind the tiles that they wait for; runs walk them backwards, ahead of the boxes
// that wait for them.
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

/// The lattice whose cells are a step's boxes of queries; without one, boxes begin at any query.
template <class QueryBox, bool Ordered> using Lattice = Choose<Ordered, QueryBox, BoxShape<1, 1, 1>>::Type;

/// Returns the queries of which some may see keys of the tile at `own`, from the beginning of a cell on. Part 0:
/// queries on the grid. Parts 1 and 2: queries of a run, as a range of origins. Called by all lanes of a warp.
template <class Cell, class OwnBox, class Params>
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
  GridRange queries = queries_of(OwnBox(), args, head, b, h, own.origin, p.q_extent, p.kv_extent, beside.q[0]);
#pragma unroll
  for (int axis = 0; axis < 3; ++axis) queries.begin[axis] -= queries.begin[axis] % Cell::extent(axis);
  return queries;
}

/// Tiles of keys along an axis of which a cell's queries see some.
struct SeenTiles {
  int behind = 0, all = 0; ///< behind: a CTA's own tile
  bool own = false;        ///< whether this is one of them
};

/// Returns them for the cell that begins at `x`. `tile`: the CTA's own. Called by all lanes of a warp.
template <class Cell, class OwnBox, class Params>
ATTNC_DEVICE SeenTiles seen_tiles(const Params& p, const ModArgs& args, const Mod::Head& head, int b, int h, int axis,
                                  int x, int tile) {
  SeenTiles seen;
#pragma unroll 1
  for (int first = 0; first < p.kv_tiles[axis]; first += 32) {
    unsigned word = 0; // a bit for each tile from `first` on
#pragma unroll 1
    for (int i = threadIdx.x % 32; i < Cell::extent(axis) && x + i < p.q_extent[axis]; i += 32) {
      const int at[3] = {axis == 0 ? x + i : 0, axis == 1 ? x + i : 0, axis == 2 ? x + i : 0};
      const Token q = token_at(at, p.q_extent, beside_of(p).q[0]);
      const GridRange keys = keys_of(args, head, b, h, q, p.kv_extent);
      const int begin = keys.begin[axis] / OwnBox::extent(axis), end = keys.end[axis] - 1;
      if (keys.begin[axis] <= end) word |= bits_between(begin - first, end / OwnBox::extent(axis) + 1 - first);
    }
    word = __reduce_or_sync(0xffffffffu, word);
    seen.all += __popc(word);
    seen.behind += __popc(word & ~bits_between(0, tile + 1 - first));
    seen.own |= (word & bits_between(tile - first, tile + 1 - first)) != 0;
  }
  return seen;
}

/// Returns how many tiles of keys add to dQ of the cell at `at` before that of `own`. -1: no query of the cell sees
/// keys of `own`, which adds nothing. Called by all lanes of a warp.
template <class Cell, class OwnBox, class Params>
ATTNC_DEVICE int turn_of(const Params& p, const ModArgs& args, const Mod::Head& head, int b, int h,
                         const OwnPlace<OwnBox>& own, const int (&at)[3]) {
  const int runs = tiles_beside(beside_of(p).kv, OwnBox::kTokens);
  if (is_beside(own.origin)) {
    const int first = run_of(own.origin) ? (beside_of(p).kv[0] + OwnBox::kTokens - 1) / OwnBox::kTokens : 0;
    return runs - 1 - first - own.origin[2] / OwnBox::kTokens;
  }
  int turn = 0;
  if (is_beside(at)) {
#pragma unroll
    for (int axis = 0; axis < 3; ++axis)
      turn = (turn + 1) * p.kv_tiles[axis] - 1 - own.origin[axis] / OwnBox::extent(axis);
    return Mod::kBothBeside != Beside::None ? turn + runs : turn;
  }
#pragma unroll
  for (int axis = 3 - Mod::kGridAxes; axis < 3; ++axis) {
    const int tile = own.origin[axis] / OwnBox::extent(axis);
    const SeenTiles seen = seen_tiles<Cell, OwnBox>(p, args, head, b, h, axis, at[axis], tile);
    if (!seen.own) return -1;
    turn = turn * seen.all + seen.behind;
  }
  return Mod::kKeyBeside != Beside::None ? turn + runs : turn;
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
/// a run of which some may. Called by all lanes of a warp. Ordered: whether boxes are cells of a lattice.
template <class QueryBox, bool Ordered, class OwnBox, class Params, class Function>
ATTNC_DEVICE void for_each_step(const Params& p, const ModArgs& args, const OwnPlace<OwnBox>& own, Function step) {
  const int heads = heads_of_box(p);
#pragma unroll 1
  for (int i = 0; i < heads; ++i) {
    const HeadOfBox of(p, args, own, i);
#pragma unroll 1
    for (int part = 0; part < (Mod::kHasBeside ? 3 : 1); ++part) {
      const GridRange queries = queries_of_part<Lattice<QueryBox, Ordered>>(p, args, of.head, of.b, of.h, own, part);
      const bool is_box = part == 0;
      const int by[3] = {is_box ? QueryBox::extent(0) : 1, is_box ? QueryBox::extent(1) : 1,
                         is_box ? QueryBox::extent(2) : QueryBox::kTokens};
      int at[3];
#pragma unroll 1
      for (at[0] = queries.begin[0]; at[0] < queries.end[0]; at[0] += by[0])
#pragma unroll 1
        for (at[1] = queries.begin[1]; at[1] < queries.end[1]; at[1] += by[1])
#pragma unroll 1
          for (at[2] = queries.begin[2]; at[2] < queries.end[2]; at[2] += by[2]) {
            if constexpr (Ordered && Mod::kHasBeside) {
              const bool backwards = is_box && is_beside(own.origin); // over all queries of the grid
              int place[3];
#pragma unroll
              for (int axis = 0; axis < 3; ++axis)
                place[axis] = backwards ? (queries.end[axis] - 1) / by[axis] * by[axis] - at[axis] : at[axis];
              step(of.head, of.b, of.h, place);
            } else {
              step(of.head, of.b, of.h, at);
            }
          }
    }
  }
}

} // namespace attnc
