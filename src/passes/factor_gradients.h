// Gradients of the factors of a low-rank term (derive-low-rank): kernels that compute the term as columns of q and k
// have them in columns of dQ and dK.
//
//   score = %score + sum over r of u[%q_idx, r] * w[%kv_idx, r]
//     =>   q_factor = u[%q_idx, %round],    d_u_0 = %grad, d_u_0_index0 = %q_idx, d_u_0_index1 = %round
//          kv_factor = w[%kv_idx, %round],  d_w_0 = ...
//
// Here `grad` is the gradient that the factor of a row, or of a column, received in a round.
#pragma once

#include "attnc/error.h"
#include "ir/capture_gradient.h"
#include "ir/ir.h"

namespace attnc::passes {

struct FactorGradients {
  ir::Module module;              ///< the factors and their gradients; neither score, d_score nor mask
  ir::CaptureGradients gradients; ///< all captures of the mod, and the places of those that columns suffice for
  bool isInColumns(const std::string& capture) const;
};

/// Returns the gradients of factors. `module`: after the passes, with these gradients and a low-rank term. Columns
/// suffice for a tensor that only one factor reads, of the row at an index that depends on q_idx, of the column at one
/// that depends on kv_idx. A mod with stop_gradient has none. Errors (Blame::Internal): a pass that broke the module.
Expected<FactorGradients> factorGradients(const ir::Module& module, const ir::CaptureGradients& gradients);

/// Returns the names of the outputs of places.
std::vector<std::string> outputsOf(llvm::ArrayRef<ir::CaptureGradient> places);

} // namespace attnc::passes
