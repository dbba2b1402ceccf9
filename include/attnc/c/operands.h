/// What a launch reads and writes (operands.h has shapes, dtypes and meanings).
#pragma once

#include "attnc/c/block_mask.h"
#include "attnc/c/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/// What a launch reads. Tensors in device memory; NULL: not given, which q, k and v must be.
typedef struct attnc_operands {
  size_t struct_size;
  const attnc_tensor* q;          ///< [B, H, Q_LEN, D]
  const attnc_tensor* k;          ///< [B or 1, HKV, KV_LEN, D]; with page_table [pages, HKV, page_size, D]
  const attnc_tensor* v;          ///< [B or 1, HKV, KV_LEN, DV]; likewise. Finite, also where a mask hides rows
  const attnc_tensor* kv_lengths; ///< i32 [B]; NaN cannot occur, floats are an error; below 0 counts as 0
  const attnc_tensor* q_offsets;  ///< i32 [B]
  const attnc_capture* captures;
  size_t capture_count;
  const attnc_block_mask_view* block_mask; ///< lists in device memory; NULL: none
  float scale;                             ///< of q k^T, if has_scale; else 1 / sqrt(D)
  int32_t has_scale;                       ///< 0 or 1
  const attnc_tensor* k_scales;            ///< f32 [HKV], [1, HKV] or [B, HKV], of k of E4M3
  const attnc_tensor* v_scales;            ///< the same of v
  const attnc_tensor* page_table;          ///< i32 [B, pages of a sequence]; kv_lengths must be given
  const attnc_tensor* new_k;               ///< [B, HKV, Q_LEN, D]: rows that the launch writes into k; or NULL, as new_v
  const attnc_tensor* new_v;               ///< [B, HKV, Q_LEN, DV]
  const attnc_tensor* cu_seqlens_q;        ///< i32 [B + 1]: a ragged batch; q, k, v, out are [1, heads, rows of all, dim]
  const attnc_tensor* cu_seqlens_kv;       ///< i32 [B + 1]; NULL: cu_seqlens_q
  int64_t max_q_len;                       ///< of a ragged batch: its longest sequence; 0: not known
  int64_t max_kv_len;                      ///< the same of k and v
} attnc_operands;

/// What a launch writes: those that are asked for.
typedef struct attnc_outputs {
  size_t struct_size;
  const attnc_tensor* out;     ///< [B, H, Q_LEN, DV]; forward kernels always write it
  const attnc_tensor* lse;     ///< f32 [B, H, Q_LEN], dense
  const attnc_tensor* row_max; ///< the same
} attnc_outputs;

/// What a backward launch reads.
typedef struct attnc_backward_operands {
  size_t struct_size;
  const attnc_operands* forward; ///< of the forward launch
  const attnc_tensor* out;       ///< what it wrote
  const attnc_tensor* lse;       ///< the same
  const attnc_tensor* d_out;     ///< gradient of a loss by out
  const attnc_tensor* d_lse;     ///< by lse; NULL: 0
} attnc_backward_operands;

/// What a backward launch writes.
typedef struct attnc_backward_outputs {
  size_t struct_size;
  const attnc_tensor* d_q; ///< all three, or none of them
  const attnc_tensor* d_k;
  const attnc_tensor* d_v;
  const attnc_capture* captures; ///< a TENSOR for each capture that wants a gradient, by name
  size_t capture_count;
} attnc_backward_outputs;

#ifdef __cplusplus
}
#endif
