// Kernel parameters of the sm90 family, one definition for kernels and host. Plain types only.
#pragma once

#include "params.cuh"

namespace attnc {

/// A CUtensorMap, as cuTensorMapEncodeTiled fills it.
struct alignas(64) TensorMap {
  unsigned long long words[16];
};

/// The order in which CTAs, or clusters of them, take tiles of Q rows. A cluster's tiles count as one. Heads (b, h)
/// form sections, small enough that the K and V of a section stay in L2. Within a section the last rows of all heads
/// come first, because they tend to be the longest. Good sections: min(64, 32 MiB / bytes of K and V of a head) KV
/// heads, times the query heads that share one.
struct TileOrder {
  int q_tiles;            // tiles of kBlockM rows in q_len, or of a cluster's; for a ragged batch, slots
                          // (algo/sequence.cuh)
  int heads;              // batch * q_heads, and for a ragged batch q_heads; divided by the heads of a cluster
  int section;            // heads of a section in the same count, >= 1; the last section may be smaller
  unsigned int* counters; // two, zero before the first launch and after every one, not shared by concurrent
                          // launches; null: tiles are dealt round robin, slower if they differ in length
};

/// Returns how many columns of O are one product in forward kernels of e4m3, which have up to two in registers: a
/// divisor of `columns`. Both are multiples of 16. Three warpgroups (12 warps) leave fewer registers.
constexpr int out_part_columns(int columns, int warps) {
  const int most = columns > 64 && warps > 8 ? 32 : 64;
  for (int part = most; part >= 32; part -= 16)
    if (columns % part == 0) return part;
  return columns <= 176 ? columns : 16; // all of 208 would take too many registers
}

/// Forward pass: out = softmax(mod(scale * q k^T)) v. Kernels access all four through maps, but out through `base` if
/// they have no shared memory to spare.
///
/// Each map is 4-D over (head_dim, rows, heads, batch), 16-bit elements, box (64, box rows, 1, 1), 128-byte swizzle,
/// zero fill; box rows are kBlockM for q and out, kBlockN / kCluster for k and v. If `base` broadcasts a batch (stride
/// 0), the map has batch extent 1 and *_batch_step is 0; otherwise 1.
struct ForwardParamsSm90 {
  TensorMap q, k, v, out;
  ForwardParams base; // q, k, v and their strides are unused
  TileOrder order;
  int q_batch_step, k_batch_step, v_batch_step, out_batch_step;
};

/// Parameters of a kernel whose q and k have further columns in tensors of their own (low_rank.cu). Maps as of q and k,
/// with heads of q. Columns behind the tensors' are 0. A step is 0 if all batch entries, or heads, share the columns,
/// else 1.
template <class Params> struct WithColumns : Params {
  TensorMap q_columns, k_columns;
  int q_columns_batch_step, q_columns_head_step, k_columns_batch_step, k_columns_head_step;
};

/// Backward pass. Maps as in the forward pass: box rows are kBlockM for q and d_out, kBlockN for k and v.
///
/// dq is summed in fp32 in `d_q_sums`, tile by tile of kBlockM rows of q: [batch, q_heads, q_tiles] [2
/// warpgroups][fragment / 4][128 threads][4], in the order of the threads' fragments. Zero before the launch, unless
/// kTakesTurns: then parts of tiles whose turn is 0 afterwards are undefined and stand for 0.
///
/// base.diagonals, only in kernels with kSumsDiagonals, is also zero before the launch. It is the gradient of
/// score_mod's result, summed along diagonals: element kv_len - 1 + q_idx - kv_idx of [batch, q_heads, q_len + kv_len].
struct BackwardParamsSm90 {
  TensorMap q, k, v, d_out;
  BackwardParams base; // q, k, v, d_out and their strides are unused
  float* d_q_sums;
  int* turns;  // [batch, q_heads, q_tiles, 2], zero before the launch: algo/turns.cuh. Null unless kTakesTurns
  int section; // KV heads (of all batches) of a section: see TileOrder. In wide kernels, query heads
  int q_batch_step, k_batch_step, v_batch_step, d_out_batch_step;
  unsigned* visits; // zero before the first kernel: algo/visits.cuh. Null unless kDeterministic and kBlockSparse
  int sharers;    // wide kernels: query heads (of all batches that share K and V) of a KV head, each with its own CTAs
  float* kv_sums; // wide kernels, if sharers > 1, zero before the launch: algo/kv_sums.cuh. Otherwise null
  int* kv_arrivals; // the same
};

/// Maps of a tensor and of its tangent, as in the forward pass, and their batch steps.
struct MovingMaps {
  TensorMap own, tangent;
  int own_batch_step, tangent_batch_step;
};

/// Tangents. Box rows are kBlockM for q and d_out, kBlockN for k and v.
struct TangentParamsSm90 {
  MovingMaps q, k, v;
  TensorMap d_out;
  TangentParams base; // what has maps is unused, but for d_out in attnc_tangent_rows
  int d_out_batch_step;
};

/// Gradients of captures from the sums along diagonals.
struct DiagonalParams {
  CaptureParams captures;
  const float* diagonals; // BackwardParams::diagonals
};

} // namespace attnc
