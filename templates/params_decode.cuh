// Kernel parameters of decode kernels, one definition for kernels and host. Plain types only.
#pragma once

#include "params_sm90.cuh"

namespace attnc {

/// A factor of each KV head of each batch entry, in device memory; null: 1.
struct HeadScales {
  const float* first;
  long long batch, head; // strides
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
  __device__ __forceinline__ float of(int b, int kv_head) const {
    return first ? first[b * batch + kv_head * head] : 1.f;
  }
#endif
};

/// Divides by a number that the host knows: as Granlund and Montgomery, "Division by invariant integers using multiplication".
struct Divisor {
  int divisor; // at least 1
  unsigned multiplier, shift;
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
  /// Of n >= 0.
  __device__ __forceinline__ int quotient(int n) const { return int((__umulhi(multiplier, unsigned(n)) + unsigned(n)) >> shift); }
  __device__ __forceinline__ int remainder(int n) const { return n - quotient(n) * divisor; }
#endif
};

/// Forward pass in tiles of packed rows.
struct PackedParams : ForwardParams {
  Divisor by_group, by_tiles, by_kv_heads; // by_tiles: tiles of a (batch, KV head); of a ragged batch, slots of a KV head
};

/// Forward pass of few queries over long KV, divided along KV. Work is what algo/decode_work.cuh deals: items, one for
/// each tile of packed rows of a (batch, KV head). A CTA leaves at most two parts of items, in places of its own.
/// `part_rows`: rows of a part, those of a tile or all of a (batch, KV head) if these are fewer.
///
/// Null `part_out`: an item is never divided.
struct DecodeParams {
  PackedParams forward;  // its lists: by tile of packed rows, of steps that live; all partial. For masks without bounds alone
  float* part_out;       // [CTAs, 2, part_rows, head_dim_v]: not normalised
  float* part_state;     // [CTAs, 2, part_rows, 4]: RowState of algo/merge_rows.cuh
  int* arrived;          // by item: parts that are there; 0 before and after a launch
  int part_rows;
  HeadScales k_scale, v_scale; // of K and V of fp8
};

/// The same with maps of K and V: as those of ForwardParamsSm90, of boxes of as many rows as a team takes in a step, or a page has
/// if these are fewer.
struct DecodeParamsSm90 : DecodeParams {
  TensorMap k, v;
  int k_batch_step, v_batch_step;
};

/// What makes these lists: decode_lists.cu. An item's bits are `words_of_item` words, a bit a step, the lowest first.
struct DecodeListsParams {
  PackedParams forward;  // q, k, v, out and its lists are not looked at
  unsigned* words;       // [items, words_of_item]
  int* count;            // [items]: steps that live
  int* index;            // [items, 32 words_of_item]: which, ascending
  int* arrived;          // by item: words that are there; 0 before and after a launch
  int words_of_item;     // at least 1
};

} // namespace attnc
