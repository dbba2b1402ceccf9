// Tiles of kernels by boxes of a grid as the copy engine reads and writes them: boxes on the map of a grid, and tokens
// in a row on the map of a run beside it (beside_grid.cuh). sm_90a.
#pragma once

#include "algo/beside_grid.cuh"
#include "params_sm90.cuh"
#include "ptx/tma.cuh"

namespace attnc {

/// The map of a tensor for tokens at `origin`, of the grid's own and those of runs.
ATTNC_DEVICE const TensorMap& map_of(const TensorMap& grid, const TensorMap* runs, const int (&origin)[3]) {
  return is_beside(origin) ? runs[run_of(origin)] : grid;
}
/// Where they lie on it, along an axis.
ATTNC_DEVICE int on_map(const int (&origin)[3], int axis) { return axis == 0 && is_beside(origin) ? 0 : origin[axis]; }

/// Requests a tile, all of its head dim. `barrier` gets its bytes.
template <class Tile>
ATTNC_DEVICE void request_tile(Tile tile, const TensorMap& map, unsigned barrier, const int (&x)[3], int head) {
#pragma unroll
  for (int slab = 0; slab < Tile::kSlabs; ++slab)
    ptx::tma_load_5d(tile.slab(slab), map, barrier, slab * 64, x[2], x[1], on_map(x, 0), head);
}

/// Hides when maps of runs are first read.
ATTNC_DEVICE void prefetch_run_maps(const TensorMap* runs) {
  ptx::prefetch_tensor_map(runs[0]);
  ptx::prefetch_tensor_map(runs[1]);
}

} // namespace attnc
