// The oracle: attention in double precision on the CPU, straight from its definition.
//
// In: a module, captures and operands in host memory. Out: out, lse and row maxima as doubles. For each row of q:
//
//   s[kv] = score_mod(scale * dot(q, k[kv]))   for the kv that mask_mod lets live
//   lse   = log(sum(exp(s)))    out = sum(exp(s - lse) * v)
//
// The mod is evaluated in f32, operation by operation, for the score rounded to f32, as in kernels: its meaning does
// not depend on where it runs. The products with q, k and v, the softmax and the sums are in double precision.
//
// Not: blocking, online softmax, or other optimizations besides using all cores.
#pragma once

#include "attnc/block_mask.h"
#include "attnc/error.h"
#include "attnc/operands.h"
#include "attnc/tensor.h"
#include "ir/ir.h"

#include <optional>
#include <vector>

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

/// Dense results. A row without live scores, or whose live scores are all -inf, has out 0, lse -inf and rowMax -inf. A
/// row with a live score of +inf or NaN has NaN in all three.
struct AttentionResult {
  ProblemShape problem;
  int64_t headDimV = 0;
  std::vector<double> out;    ///< [B, H, Q_LEN, DV]; ragged: [1, H, rows of q, DV], and so on
  std::vector<double> lse;    ///< [B, H, Q_LEN], natural log
  std::vector<double> rowMax; ///< [B, H, Q_LEN], largest live score after score_mod
  std::vector<double> rowSum; ///< [B, H, Q_LEN], sum of exp(score - rowMax); 0 without live columns
};

/// Checks shapes and captures (Blame::Environment naming the tensor), then computes. Deterministic: the result does not
/// depend on the number of cores. O(B H Q_LEN KV_LEN D) time, O(inputs + outputs) memory.
Expected<AttentionResult> attention(const ir::Module& module, const Captures& captures, const AttentionArgs& args);

/// Returns the extents of the problem that q, k and v pose, with the same checks as attention().
Expected<ProblemShape> problemOf(const TensorView& q, const TensorView& k, const TensorView& v);

/// Writes dense row-major `values` into `target`, rounded to its dtype. Precondition: equal numbers of elements.
void store(const std::vector<double>& values, const TensorView& target);

} // namespace attnc::reference
