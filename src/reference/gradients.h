// The oracle of the backward pass: gradients of q, k and v in double precision on the CPU, straight from the
// definition.
//
// In: a module with the output d_score (passes/autodiff.h), operands in host memory, and the gradients
// of a scalar loss by out and lse. Out: its gradients by q, k and v, and by captures, as doubles. For each row of q:
//
//   p[kv] = exp(s[kv] - lse)    s: attention.h    g[kv] = p[kv] (dot(d_out, v[kv]) - dot(d_out, out) + d_lse)
//   d_s[kv] = scale * d_score(s'[kv], g[kv])    s': the score before score_mod, 0 for the kv that do not live
//   d_q = sum d_s k    d_k += d_s q    d_v += p d_out
//   d_capture[index] += d_capture_i(s'[kv], g[kv])    for each place i where score_mod reads the capture
//
// score_mod and its derivative are evaluated in f32, as everywhere; all else is in double precision. A row without live
// scores, or with a weight that is NaN, gives what these formulas give: 0, or NaN.
#pragma once

#include "ir/capture_gradient.h"
#include "reference/attention.h"

#include <map>
#include <string>

namespace attnc::reference {

/// As AttentionArgs, with the gradients of the results. Of a block mask, lists by row count.
struct GradientArgs {
  AttentionArgs forward;
  TensorView dOut;                ///< [B, H, Q_LEN, DV], any strides; F32, F16 or BF16
  std::optional<TensorView> dLse; ///< [B, H, Q_LEN], f32, dense; not given: 0
};

/// Dense. Where k and v have batch 1, dK and dV are sums over the batch.
struct GradientResult {
  AttentionResult forward; ///< that these are the gradients of
  std::vector<double> dQ; ///< [B, H, Q_LEN, D]
  std::vector<double> dK; ///< [B or 1, HKV, KV_LEN, D]
  std::vector<double> dV; ///< [B or 1, HKV, KV_LEN, DV]
  /// How large the derivative of score_mod by the score is where weights lie: the root of its mean square by P.
  /// 1 without a score_mod.
  double scoreSlope = 1;
  /// By the name of the capture, of its shape: the sum over all that read an element.
  std::map<std::string, std::vector<double>> captures;
  /// By the name of the capture, the largest of an element: the sum over all that read it of p times the squared
  /// derivative of the score by it. Rows whose dot(d_out, out) are off by 1, each on its own, move the gradient by no
  /// more than the root of this. A derivative counts as 1 at least where the mod has an approximate function.
  std::map<std::string, double> captureSquares;
};

/// `wanted`: captures whose gradients are asked for; outputs of the module. Errors as of attention(); and (environment)
/// dOut or dLse of another shape than out and lse. Deterministic. Takes memory for the wanted gradients once a KV head.
Expected<GradientResult> gradients(const ir::Module& module, const Captures& captures, const GradientArgs& args,
                                   const ir::CaptureGradients& wanted = {});

} // namespace attnc::reference
