// The oracle of the backward pass: gradients of q, k and v in double precision on the CPU, straight from the
// definition.
//
// In: a module with the output d_score (passes/autodiff.h), operands in host memory, and the gradients of a scalar loss
// by out and lse. Out: its gradients by q, k and v, and by captures, as doubles. For each row of q:
//
//   p[kv] = exp(s[kv] - lse)    s: attention.h    g[kv] = p[kv] (dot(dout, v[kv]) - dot(dout, out) + dlse)
//   d_s[kv] = scale * d_score(s'[kv], g[kv])    s': the score before score_mod; d_s is 0 for kv that are not live
//   dq = sum d_s k    dk += d_s q    dv += p dout
//   d_capture[index] += d_capture_i(s'[kv], g[kv])    for each place i where score_mod reads the capture
//
// score_mod and its derivative are evaluated in f32, as in kernels; the rest is in double precision. A row without live
// scores, or with a weight that is NaN, gives what these formulas give: 0, or NaN.
#pragma once

#include "ir/capture_gradient.h"
#include "reference/attention.h"

#include <map>
#include <string>

namespace attnc::reference {

/// Gradients, dense. If k and v have batch 1, dK and dV are sums over the batch.
struct GradientSums {
  std::vector<double> dQ; ///< [B, H, Q_LEN, D]
  std::vector<double> dK; ///< [B or 1, HKV, KV_LEN, D]
  std::vector<double> dV; ///< [B or 1, HKV, KV_LEN, DV]
  /// By the name of the capture, with its shape: for each element, the sum over all reads of it.
  std::map<std::string, std::vector<double>> captures;
};

struct GradientResult : GradientSums {
  AttentionResult forward; ///< the forward results
  /// Size of the derivative of score_mod by the score: its root mean square, weighted by P. 1 without a score_mod.
  double scoreSlope = 1;
  /// By the name of the capture: the largest element of a sum over its reads, of p times the squared derivative of the
  /// score by it. If dot(dout, out) of each row is independently off by 1, the gradient moves by at most the root of
  /// this sum. A derivative counts as at least 1 if the mod has an approximate function.
  std::map<std::string, double> captureSquares;
};

/// Checks that dOut and dLse have the shapes of out and lse.
Status checkGradients(const BackwardOperands& args);

/// Computes the gradients. Operands are as those of attention(). BackwardOperands::out and lse are not read; of a block
/// mask, only the lists by row are. `wanted`: the requested captures; their gradients are outputs of the module.
/// Errors: those of attention(), and Blame::Environment if dOut or dLse differ in shape from out and lse.
/// Deterministic. Takes memory for the wanted gradients once per KV head.
Expected<GradientResult> gradients(const ir::Module& module, const Captures& captures, const BackwardOperands& args,
                                   const ir::CaptureGradients& wanted = {});

} // namespace attnc::reference
