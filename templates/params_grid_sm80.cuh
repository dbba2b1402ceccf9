// Parameters of kernels by boxes of a grid that compute their addresses, one definition for kernels and host. Plain
// types only.
#pragma once

#include "params.cuh"

namespace attnc {

/// Forward pass over tokens on grids. Axes are three, the slowest first; a grid of fewer has extents of 1 before them.
struct ForwardGridParamsSm80 {
  ForwardParams base; // lists with kBlockSparse alone, but for sizes of blocks
  int q_extent[3], kv_extent[3];
  int q_tiles[3]; // boxes of a CTA that the grid of queries takes along each axis
};

} // namespace attnc
