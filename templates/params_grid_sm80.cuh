// Parameters of box kernels that compute their addresses, one definition for kernels and host. Plain types only.
#pragma once

#include "params.cuh"

namespace attnc {

/// Forward pass over tokens on grids. There are three axes, slowest first; a grid with fewer has leading extents of 1.
struct ForwardGridParamsSm80 {
  ForwardParams base; // lists are only read with kBlockSparse, their block sizes never
  int q_extent[3], kv_extent[3];
  int q_tiles[3]; // a CTA's boxes along each axis of the grid of queries
};

/// Backward pass over tokens on grids. dq is summed in fp32 in `d_q_sums`, [batch, q_heads, q_len, head_dim_qk rounded
/// up to 16], zero before the launch, each row in the order of algo/d_q_rows_mma.cuh. If kDeterministic, turns follow,
/// zero as well: one for each row of dq (algo/grid_steps.cuh). Kernels of f32 have no sums.
struct BackwardGridParamsSm80 {
  BackwardParams base; // its lists are unused
  float* d_q_sums;
  int q_extent[3], kv_extent[3];
  int kv_tiles[3]; // boxes of keys along each axis of the grid of keys
};

} // namespace attnc
