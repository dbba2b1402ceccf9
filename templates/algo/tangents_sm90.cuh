// Tiles, maps and registers of the Hopper kernels of tangents: two consumer warpgroups, which own 64 rows each.
#pragma once

#include "attnc_mod.cuh"

#include "algo/tangent_scores.cuh"
#include "algo/warp_roles.cuh"
#include "params_sm90.cuh"
#include "tile/gemm_wgmma.cuh"
#include "tile/request_tile.cuh"
#include "tile/ring.cuh"
#include "tile/store_wgmma.cuh"

namespace attnc::sm90 {

static_assert(kWarps == 8, "two warpgroups");
// Registers per thread, of the launch's 168.
constexpr int kProducerRegisters = kHeadDimQk <= 64 ? 40 : 24, kConsumerRegisters = kHeadDimQk <= 64 ? 232 : 240;

/// Rows of a tensor, and of its tangent.
template <class Tile> struct MovingTile {
  static constexpr int kBytes = 2 * Tile::kBytes;
  unsigned base;

  ATTNC_DEVICE Tile own() const { return {base}; }
  ATTNC_DEVICE Tile tangent() const { return {base + Tile::kBytes}; }
};

using QTiles = MovingTile<SwizzledTile<Element, kBlockM, kHeadDimQk>>;
using KTiles = MovingTile<SwizzledTile<Element, kBlockN, kHeadDimQk>>;
using VTiles = MovingTile<SwizzledTile<Element, kBlockN, kHeadDimV>>;
using OTile = SwizzledTile<Element, kBlockM, kHeadDimV>; // dO
constexpr int kQColumns = computed_columns(kHeadDimQk), kVColumns = computed_columns(kHeadDimV);

/// In a message with a tile: it is the last message, and there is no tile.
constexpr int kNoStep = 64;

using GroupBarriers = NamedBarriers<1, 128>; // by consumer: its products are complete

/// Issues the loads of rows of a tensor and of its tangent. One thread.
template <class Tile>
ATTNC_DEVICE void request(MovingTile<Tile> tiles, const MovingMaps& maps, unsigned barrier, int row, int h, int b) {
  request_tile(tiles.own(), maps.own, barrier, row, h, b * maps.own_batch_step);
  request_tile(tiles.tangent(), maps.tangent, barrier, row, h, b * maps.tangent_batch_step);
}

/// Stores a consumer's 64 rows times `factor`, by way of its own rows of `scratch`. Their first one is `start` of
/// `rows` rows of a head, which begin at `to`.
template <int Columns, class Tile, int N>
ATTNC_DEVICE void store_rows_by(Tile scratch, int group, void* to, const Strides& stride, int b, int h, int start,
                                int rows, const Fragment<1, N>& x, float factor) {
  GroupBarriers::sync(group);
  const int row = 64 * group + ptx::opaque(threadIdx.x) / 32 % 4 * 16; // the warp's first one
  Element* const first = (Element*)to + b * stride.batch + h * stride.head + (start + row) * stride.row;
  wgmma::store_rows<Columns>(first, stride.row, rows - start - row, x, factor, scratch.chunk(row, 0));
}

} // namespace attnc::sm90
