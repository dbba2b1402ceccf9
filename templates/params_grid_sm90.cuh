// Parameters of box kernels with TMA, one definition for kernels and host. Plain types only.
#pragma once

#include "params_sm90.cuh"

namespace attnc {

/// Forward pass over tokens on grids.
///
/// There are three axes, slowest first; a grid with fewer has leading extents of 1. The maps are 5-D over (head_dim,
/// axis 2, axis 1, axis 0, heads), 16-bit elements, box (64, a box of tokens, 1), 128-byte swizzle, zero fill. Head h
/// of batch entry b is entry h + b *_batch_step of the last axis: strides over the batch are multiples of those over
/// heads.
struct ForwardGridParamsSm90 {
  TensorMap q, k, v, out;
  ForwardParams base; // q, k, v, out, their strides and block sizes are unused; lists only with kBlockSparse
  TileOrder order;    // q_tiles: a CTA's boxes in the grid of queries
  int q_extent[3], kv_extent[3];
  int q_tiles[3]; // along each axis
  int q_batch_step, k_batch_step, v_batch_step, out_batch_step;
};

/// Backward pass. Maps of q, k, v and d_out as in the forward pass; their boxes are kBlockM queries, kBlockN keys.
///
/// dq is summed in fp32 in `d_q_sums`, dense [batch, q_heads, q_len, head_dim_qk], zero before the launch. Its map is
/// also 5-D, over 32-bit elements, box (32, 64 tokens, 1): a box of queries, or half of one along its first axis with
/// more than one coordinate.
struct BackwardGridParamsSm90 {
  TensorMap q, k, v, d_out, sums;
  BackwardParams base; // q, k, v, d_out, their strides and lists are unused
  float* d_q_sums;
  int q_extent[3], kv_extent[3];
  int kv_tiles[3]; // boxes of keys along each axis
  TileOrder order; // of these boxes; heads: KV heads of all kv batches; counters: one, zero before each launch. If
                   // kDeterministic, turns follow, zero as well: two for each row of dq (algo/grid_steps.cuh)
  int q_batch_step, k_batch_step, v_batch_step, d_out_batch_step;
};

/// Both passes for mods with off-grid tokens: runs before a grid and runs after it.
///
/// Each run has maps of its own, of a grid of 1 x 1 x its tokens. Their boxes have the same number of tokens, in a row.
/// The grids' own maps begin at their first token. Tiles of a run's queries (backward: keys) are as long as a CTA's
/// boxes. `order.q_tiles` counts all: boxes, then tiles before the grid, then those after it.
struct ForwardGridBesideParamsSm90 : ForwardGridParamsSm90 {
  TensorMap q_run[2], k_run[2], v_run[2], out_run[2];
  int q_beside[2], kv_beside[2]; // tokens of a run
  int unused[12];                // instead of padding
};
struct BackwardGridBesideParamsSm90 : BackwardGridParamsSm90 {
  TensorMap q_run[2], k_run[2], v_run[2], d_out_run[2], sums_run[2];
  int q_beside[2], kv_beside[2]; // tokens of a run
  int unused[12];                // instead of padding
};

} // namespace attnc
