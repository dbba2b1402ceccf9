// The operands of the oracle, and what q, k and v must agree on.
#pragma once

#include "attnc/block_mask.h"
#include "attnc/error.h"
#include "attnc/operands.h"
#include "attnc/problem.h"
#include "attnc/tensor.h"

#include <optional>

namespace attnc::reference {

/// Operands, all in host memory, with any strides; F32, F16, BF16 or E4M3, each its own.
struct AttentionArgs {
  TensorView q;                ///< [B, H, Q_LEN, D]
  TensorView k;                ///< [B or 1, HKV, KV_LEN, D]; H a multiple of HKV
  TensorView v;                ///< [B or 1, HKV, KV_LEN, DV]
  std::optional<double> scale; ///< default: 1 / sqrt(D)
  /// In host memory. Columns of blocks that are not listed are not live; full blocks skip mask_mod. Its batch and heads
  /// are B and H, or 1; its lengths are those of q and k.
  const BlockMaskView* blockMask = nullptr;
  /// i32 [B], for modules with the outputs kv_length and q_offset.
  std::optional<TensorView> kvLengths, qOffsets;
  std::optional<TensorView> kScales, vScales; ///< f32 [HKV] or [B or 1, HKV]: factors of k's and v's elements
  std::optional<RaggedBatch> ragged;          ///< in host memory, for modules with its outputs; excludes a block mask
};

/// Returns the extents of the problem that q, k and v pose, with the same checks as attention().
Expected<ProblemShape> problemOf(const TensorView& q, const TensorView& k, const TensorView& v);

} // namespace attnc::reference
