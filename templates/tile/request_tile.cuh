// Whole tiles from global memory by the copy engine (sm_90).
#pragma once

#include "ptx/tma.cuh"
#include "tile/shared_tile.cuh"

namespace attnc {

/// Requests a box of whole rows: rows [row, row + Rows) of head h, batch b. One thread.
template <class Tile>
ATTNC_DEVICE void request_tile(Tile tile, const TensorMap& map, unsigned barrier, int row, int h, int b) {
#pragma unroll
  for (int slab = 0; slab < Tile::kSlabs; ++slab)
    ptx::tma_load_4d(tile.slab(slab), map, barrier, slab * 64, row, h, b);
}

} // namespace attnc
