// Further columns of Q and K, behind kNarrowHeadDim, that come from tensors of their own (sm_90): low_rank.cu.
//
// They are whole slabs of a tile, of which the last one may have zeros behind its columns. If kNarrowHeadDim is
// kHeadDimQk, there are none.
#pragma once

#include "attnc_config.cuh"

#include "params_sm90.cuh"
#include "tile/request_tile.cuh"

namespace attnc {

constexpr bool kHasColumns = kNarrowHeadDim < kHeadDimQk;

/// A kernel's parameters: with maps of further columns if there are any.
template <class Params> using WithColumnsIfAny = typename Choose<kHasColumns, WithColumns<Params>, Params>::Type;

/// Returns the slabs of a tile of Q or K that come from q or k.
template <class Tile> ATTNC_DEVICE auto own_columns(Tile tile) {
  static_assert(!kHasColumns || kNarrowHeadDim % Tile::kSlabColumns == 0, "slabs are of one tensor");
  return SwizzledTile<typename Tile::Element, Tile::kRows, kNarrowHeadDim>{tile.base};
}
/// Returns the other slabs.
template <class Tile> ATTNC_DEVICE auto further_columns(Tile tile) {
  return SwizzledTile<typename Tile::Element, Tile::kRows, kHeadDimQk - kNarrowHeadDim>{
      tile.slab(kNarrowHeadDim / Tile::kSlabColumns)};
}

/// Issues the loads of the other slabs, if any: of rows of query head h. One thread.
template <class Params, class Tile>
ATTNC_DEVICE void request_q_columns(const WithColumns<Params>& p, Tile tile, unsigned barrier, int row, int h, int b) {
  request_tile(further_columns(tile), p.q_columns, barrier, row, h * p.q_columns_head_step, b * p.q_columns_batch_step);
}
template <class Params, class Tile>
ATTNC_DEVICE void request_k_columns(const WithColumns<Params>& p, Tile tile, unsigned barrier, int row, int h, int b) {
  request_tile(further_columns(tile), p.k_columns, barrier, row, h * p.k_columns_head_step, b * p.k_columns_batch_step);
}
template <class Params> ATTNC_DEVICE void prefetch_columns(const WithColumns<Params>& p) {
  ptx::prefetch_tensor_maps(p.q_columns, p.k_columns);
}
template <class Params, class Tile> ATTNC_DEVICE void request_q_columns(const Params&, Tile, unsigned, int, int, int) {
  static_assert(!kHasColumns || sizeof(Params) == 0);
}
template <class Params, class Tile> ATTNC_DEVICE void request_k_columns(const Params&, Tile, unsigned, int, int, int) {
  static_assert(!kHasColumns || sizeof(Params) == 0);
}
template <class Params> ATTNC_DEVICE void prefetch_columns(const Params&) {}

} // namespace attnc
