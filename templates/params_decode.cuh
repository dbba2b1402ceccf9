// Kernel parameters of decode kernels, one definition for kernels and host. Plain types only.
#pragma once

#include "params_sm90.cuh"

namespace attnc {

/// Divides by a number that the host knows, as in Granlund and Montgomery, "Division by invariant integers using
/// multiplication".
struct Divisor {
  int divisor; // at least 1
  unsigned multiplier, shift;
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
  /// n must be >= 0.
  __device__ __forceinline__ int quotient(int n) const {
    return int((__umulhi(multiplier, unsigned(n)) + unsigned(n)) >> shift);
  }
  __device__ __forceinline__ int remainder(int n) const { return n - quotient(n) * divisor; }
#endif
};

/// Forward pass in tiles of packed rows.
struct PackedParams : ForwardParams {
  Divisor by_group, by_tiles, by_kv_heads; // by_tiles: tiles of a (batch, KV head); if ragged, slots of a KV head
};

/// Cost of an item's end, in steps.
constexpr int kStepsOfEnd = 2;

/// How algo/decode_work.cuh deals items if all have one length: its divisions, done by the host.
struct EqualItems {
  Divisor by_units;         // pieces of an item if `in_pieces`, else steps
  Divisor by_each, by_more; // steps of a share, and of one that has one more
  int rest;                 // shares that have one more
  int in_pieces;            // bool
};

/// Split-KV forward pass: few queries over long KV. algo/decode_work.cuh deals items, one for each tile of packed rows
/// of a (batch, KV head). A CTA leaves at most two parts of items, in places of its own. `part_rows`: rows of a part,
/// those of a tile, or all of a (batch, KV head) if these are fewer.
///
/// Null `part_out`: items are not divided.
struct DecodeParams {
  PackedParams forward;    // its lists: by tile of packed rows, live steps; all partial. Only for masks without bounds
  float* part_out;         // [CTAs, 2, part_rows, head_dim_v]: not normalised
  float* part_state;       // [CTAs, 2, part_rows, 4]: RowState of algo/merge_rows.cuh
  int* arrived;            // per item: parts that have arrived; 0 before and after a launch. Wide heads: SharedItem
  Scales k_scale, v_scale; // for fp8 K and V
  int part_rows;
  EqualItems equal; // for `part_out`
};

/// The same with maps of K and V, as in ForwardParamsSm90. Box rows: the rows that a team takes in a step, or those of
/// a page if these are fewer.
struct DecodeParamsSm90 : DecodeParams {
  TensorMap k, v;
  int k_batch_step, v_batch_step;
  int teams; // of CTAs, in decode_wide_sm90.cu: the tiles of a head, or 1
};

/// Parameters of decode_lists.cu, which makes these lists. An item's bits are `words_of_item` words, a bit per step,
/// lowest first.
struct DecodeListsParams {
  PackedParams forward; // q, k, v, out and its lists are unused
  unsigned* words;      // [items, words_of_item]
  int* count;           // [items]: live steps
  int* index;           // [items, 32 words_of_item]: which steps live, ascending
  int* arrived;         // per item: words that have arrived; 0 before and after a launch
  int words_of_item;    // at least 1
};

} // namespace attnc
