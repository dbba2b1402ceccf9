// Parameters of kernels that compute outputs of mods.
#pragma once

#include "params.cuh"

namespace attnc {

/// Reductions of a value over live scores. `lse` has those of the forward pass.
constexpr int kMaxReductions = 8; // ir::kMaxReductions
struct ReductionParams : ForwardParams {
  float* out[kMaxReductions];         // by Mod::Reduction*::kIndex; null if not wanted, or of another kernel
  const float* parts[kMaxReductions]; // [batch, q_heads, q_len]: what is reduced to out, [batch, q_heads]
};

} // namespace attnc
