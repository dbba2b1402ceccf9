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

#include "attnc/captures.h"
#include "attnc/error.h"
#include "attnc/operands.h"
#include "attnc/tensor.h"
#include "ir/reductions.h"
#include "reference/problem.h"

#include <vector>

namespace attnc::reference {

/// Dense results. A row without live scores, or whose live scores are all -inf, has out 0, rowMax -inf, and its sink as
/// lse, which is -inf without one. A
/// row with a live score of +inf or NaN has NaN in all three.
struct AttentionResult {
  ProblemShape problem;
  int64_t headDimV = 0;
  std::vector<double> out;    ///< [B, H, Q_LEN, DV]; ragged: [1, H, rows of q, DV], and so on
  std::vector<double> lse;    ///< [B, H, Q_LEN], natural log
  std::vector<double> rowMax; ///< [B, H, Q_LEN], largest live score after score_mod
  std::vector<double> rowTop; ///< [B, H, Q_LEN], the larger of rowMax and the row's sink
  std::vector<double> rowSum; ///< [B, H, Q_LEN], sum of exp(score - rowTop), with the sink; 0 without terms
  /// An output of the mod, with the shape that Outputs::reductions has.
  struct Reduced {
    ir::Reduction what;
    std::vector<int64_t> shape;
    std::vector<double> values;
  };
  std::vector<Reduced> reduced = {}; ///< in the order of ir::reductionsOf(); empty if they are not wanted
};

/// Checks shapes and captures (Blame::Environment naming the tensor), then computes. Operands are in host memory, with
/// any strides and each with its own dtype: F32, F16, BF16 or E4M3. Operands::captures is not read. `module`: with the
/// outputs for the sequences of the operands (passes/sequences.h). Deterministic: the result does not depend on the
/// number of cores. O(B H Q_LEN KV_LEN D) time, O(inputs + outputs) memory.
/// `reduces`: whether outputs of the mod are wanted.
Expected<AttentionResult> attention(const ir::Module& module, const Captures& captures, const Operands& operands,
                                    bool reduces = false);

/// Writes dense row-major `values` into `target`, rounded to its dtype. Precondition: equal numbers of elements.
void store(const std::vector<double>& values, const TensorView& target);

} // namespace attnc::reference
