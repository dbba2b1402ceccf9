// Parameters of kernels by boxes of a grid that compute their addresses, one definition for kernels and host. Plain
// types only.
#pragma once

#include "params.cuh"

namespace attnc {

/// Forward pass over tokens on grids. Axes are three, the slowest first; a grid of fewer has extents of 1 before them.
struct ForwardGridParamsSm80 {
  ForwardParams base; // lists are read with kBlockSparse alone, sizes of blocks never
  int q_extent[3], kv_extent[3];
  int q_tiles[3]; // boxes of a CTA that the grid of queries takes along each axis
};

/// Backward pass, likewise. The gradient of q is summed in fp32 in `d_q_sums`, [batch, q_heads, q_len, head_dim_qk in
/// whole 16], zero before the launch, each row in the order of algo/d_q_rows_mma.cuh.
struct BackwardGridParamsSm80 {
  BackwardParams base; // its lists are not used
  float* d_q_sums;
  int q_extent[3], kv_extent[3];
  int kv_tiles[3]; // boxes of keys that the grid of keys takes along each axis
};

} // namespace attnc
