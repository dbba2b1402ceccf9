/// The tensors that a launch reads and writes (operands.h).
#pragma once

#include "attnc/c/block_mask.h"
#include "attnc/c/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/// The inputs of a launch (Operands): views of device memory that the caller owns. The memory must stay valid until the
/// stream has passed the launch. The structs are read only during the call. NULL means not given; q, k and v are
/// required.
typedef struct attnc_operands {
  size_t struct_size;    ///< sizeof(attnc_operands).
  const attnc_tensor* q; ///< [B, H, Q_LEN, D], last stride 1.
  const attnc_tensor* k; ///< [B or 1, HKV, KV_LEN, D], last stride 1; with page_table [pages, HKV, page_size, D].
  /// [B or 1, HKV, KV_LEN, DV], last stride 1; with page_table [pages, HKV, page_size, DV]. Rows that a mask hides must
  /// be finite.
  const attnc_tensor* v;
  const attnc_tensor* kv_lengths; ///< i32 [B]: rows of k and v in each sequence, clamped to 0 .. KV_LEN.
  const attnc_tensor* q_offsets;  ///< i32 [B]: position of the first query of each sequence.
  const attnc_capture* captures;  ///< All captures of the mod; tensors in device memory.
  size_t capture_count;           ///< Number of captures.
  /// Block mask with its lists in device memory. In a ragged batch its blocks are of each sequence's own rows and
  /// positions. Its batch is then the sequences (or 1), and its lengths are max_q_len and max_kv_len.
  const attnc_block_mask_view* block_mask;
  float scale;                    ///< Factor of q k^T, if has_scale is 1. Default: 1 / sqrt(D).
  int32_t has_scale;              ///< 0 or 1: whether scale is given.
  const attnc_tensor* k_scales;   ///< f32 [HKV], [1, HKV] or [B, HKV]: factors of k of E4M3. Default: 1.
  const attnc_tensor* v_scales;   ///< f32 [HKV], [1, HKV] or [B, HKV]: factors of v of E4M3. Default: 1.
  const attnc_tensor* page_table; ///< i32 [B, pages of a sequence]. Needs kv_lengths.
  /// [B, HKV, Q_LEN, D], dtype of q, last stride 1: rows that the launch writes into k. Give both new_k and new_v, or
  /// none.
  const attnc_tensor* new_k;
  const attnc_tensor* new_v; ///< [B, HKV, Q_LEN, DV], dtype of q, last stride 1: rows that the launch writes into v.
  /// i32 [B + 1]: cumulative lengths of a ragged batch. Tensors q, k, v, out, new_k and new_v are then [1, heads, rows
  /// of all, dim]; but k and v with page_table are pools.
  const attnc_tensor* cu_seqlens_q;
  const attnc_tensor* cu_seqlens_kv; ///< i32 [B + 1]: cumulative lengths of k and v. Default: cu_seqlens_q.
  int64_t max_q_len;                 ///< Longest sequence of a ragged batch, in rows of q. 0: unknown.
  int64_t max_kv_len;                ///< Longest sequence of a ragged batch, in rows of k and v. 0: unknown.
  /// Factors of q of E4M3, f32: [H], [1, H] or [B, H]. Or [1 or B, H, blocks of 128 rows], or of rows: [1 or B, H,
  /// Q_LEN], ragged [1, H, rows of q]. Default: 1. k_scales and v_scales may then be of blocks of 128 positions. They
  /// may be of rows or pages with any q (Operands::kScales).
  const attnc_tensor* q_scales;
} attnc_operands;

/// The outputs of a launch (Outputs): those asked for, in device memory that the caller owns.
typedef struct attnc_outputs {
  size_t struct_size;      ///< sizeof(attnc_outputs).
  const attnc_tensor* out; ///< [B, H, Q_LEN, DV], dtype of q, last stride 1. Forward kernels always write it.
  const attnc_tensor* lse; ///< f32 [B, H, Q_LEN], dense; natural log; -inf for a fully masked row; 0 with a weight_mod.
  const attnc_tensor* row_max; ///< f32 [B, H, Q_LEN], dense; natural units; -inf for a fully masked row.
  /// A TENSOR for each output of the mod that is wanted, by name: f32, dense, with the axes that the mod declares
  /// (Outputs::reductions).
  const attnc_capture* reductions;
  size_t reduction_count; ///< Number of reductions.
} attnc_outputs;

/// The inputs of a backward launch (BackwardOperands). Tensors are in device memory, and are not modified. If the loss
/// reads outputs of the mod, captures of `forward` have the gradient of each sum NAME as NAME_gradient.
typedef struct attnc_backward_operands {
  size_t struct_size;            ///< sizeof(attnc_backward_operands).
  const attnc_operands* forward; ///< Operands of the forward launch.
  const attnc_tensor* out;       ///< [B, H, Q_LEN, DV], dtype of q, last stride 1: out of the forward launch.
  const attnc_tensor* lse;       ///< f32 [B, H, Q_LEN], dense: lse of the forward launch.
  const attnc_tensor* dout;      ///< Gradient of out; shape and dtype of out, last stride 1.
  const attnc_tensor* dlse;      ///< Gradient of lse; shape and dtype of lse. Default: 0.
  /// Directions of q, k and v, with their shapes and dtype, last stride 1; all or none. The launch then computes
  /// tangents, as BackwardOperands::qTangent tells. Each captured float NAME has its direction as capture NAME_tangent.
  const attnc_tensor* q_tangent;
  const attnc_tensor* k_tangent; ///< Direction of k.
  const attnc_tensor* v_tangent; ///< Direction of v.
} attnc_backward_operands;

/// The outputs of a backward launch (BackwardOutputs): gradients, in device memory that the caller owns. They are
/// written, not added to. Give dq, dk and dv, or none of them.
typedef struct attnc_backward_outputs {
  size_t struct_size;              ///< sizeof(attnc_backward_outputs).
  const attnc_tensor* dq;          ///< Gradient of q; shape and dtype of q, last stride 1.
  const attnc_tensor* dk;          ///< Gradient of k; shape and dtype of k, last stride 1.
  const attnc_tensor* dv;          ///< Gradient of v; shape and dtype of v, last stride 1.
  const attnc_capture* captures;   ///< A TENSOR for each capture that gets a gradient, by name.
  size_t capture_count;            ///< Number of captures.
  const attnc_tensor* out_tangent; ///< Tangent of out, like it; if the operands have tangents, required then.
  const attnc_tensor* lse_tangent; ///< Tangent of lse, like it; as out_tangent.
} attnc_backward_outputs;

#ifdef __cplusplus
}
#endif
