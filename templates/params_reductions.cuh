// Parameters of kernels that compute outputs of mods.
#pragma once

#include "params_sm90.cuh"

namespace attnc {

/// Reductions of a value over live scores. `lse` has those of the forward pass.
constexpr int kMaxReductions = 8; // ir::kMaxReductions
struct ReductionParams : ForwardParams {
  float* out[kMaxReductions];         // by Mod::Reduction*::kIndex; null if not wanted, or of another kernel
  const float* parts[kMaxReductions]; // [batch, q_heads, q_len]: what is reduced to out, [batch, q_heads]
};

/// For reductions_sm90.cu. Maps as in the forward pass, with boxes of kBlockM rows of what a CTA owns, and of kBlockN
/// of what it walks.
struct ReductionParamsSm90 {
  TensorMap q, k;
  ReductionParams base; // q, k and their strides are unused
  int q_batch_step, k_batch_step;
};

} // namespace attnc
