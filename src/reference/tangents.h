// The oracle of tangents: derivatives of attention and of its gradients along directions, in double precision on the
// CPU, straight from the definition (templates/algo/tangents.cuh has the formulas).
//
// In: a module with the outputs of passes/tangents.h, operands in host memory with directions of q, k and v, and those
// of captures among `captures`. Out: tangents of out, lse and gradients, as doubles.
#pragma once

#include "ir/capture_gradient.h"
#include "reference/gradients.h"

namespace attnc::reference {

/// Dense results: tangents of gradients, and
struct TangentResult : GradientSums {
  std::vector<double> out; ///< [B, H, Q_LEN, DV]
  std::vector<double> lse; ///< [B, H, Q_LEN]; 0 for a row without live scores
};

/// Computes tangents. Operands and errors are those of gradients(); Blame::Environment if a direction differs in shape
/// from its tensor.
Expected<TangentResult> tangents(const ir::Module& module, const Captures& captures, const BackwardOperands& args,
                                 const ir::CaptureGradients& wanted = {});

} // namespace attnc::reference
