// TMA loads and stores of tiles for box kernels: boxes on the map of a grid, and consecutive tokens on the map of an
// off-grid run (beside_grid.cuh). sm_90a.
#pragma once

#include "algo/beside_grid.cuh"
#include "params_sm90.cuh"
#include "ptx/tma.cuh"

namespace attnc {

/// Returns the map of a tensor for tokens at `origin`: the grid's own, or that of a run.
ATTNC_DEVICE const TensorMap& map_of(const TensorMap& grid, const TensorMap* runs, const int (&origin)[3]) {
  return is_beside(origin) ? runs[run_of(origin)] : grid;
}
/// Returns the coordinate of these tokens on that map, along an axis.
ATTNC_DEVICE int on_map(const int (&origin)[3], int axis) { return axis == 0 && is_beside(origin) ? 0 : origin[axis]; }

/// Issues the TMA loads of a tile, all of its head dim. `barrier` counts its bytes.
template <class Tile>
ATTNC_DEVICE void request_tile(Tile tile, const TensorMap& map, unsigned barrier, const int (&x)[3], int head) {
#pragma unroll
  for (int slab = 0; slab < Tile::kSlabs; ++slab)
    ptx::tma_load_5d(tile.slab(slab), map, barrier, slab * 64, x[2], x[1], on_map(x, 0), head);
}

/// Prefetches the maps of runs, to hide their first reads.
template <class... Runs> ATTNC_DEVICE void prefetch_run_maps(const Runs*... runs) {
  (..., ptx::prefetch_tensor_maps(runs[0], runs[1]));
}

} // namespace attnc
