// The fp64 reference over the operands of a run.
#pragma once

#include "problem/operands.h"
#include "problem/problem_options.h"

#include "reference/error_bounds.h"

namespace attnc::cli {

/// A run as src/reference takes it.
struct ReferenceProblem {
  Mod mod;                     ///< with the outputs for its sequences and gradients
  BackwardOperands args;       ///< views of the operands; without --backward, those of the forward pass
  ir::CaptureGradients wanted; ///< gradients of captures
};
Expected<ReferenceProblem> referenceProblem(const Mod& mod, const HostOperands& operands,
                                            const ProblemOptions& options);

/// Runs the reference; without --backward, only the forward pass.
Expected<reference::GradientResult> runReference(const Mod& mod, const HostOperands& operands,
                                                 const ProblemOptions& options);

/// Returns how far the results of a GPU may be off from these, of runReference().
Expected<reference::ErrorBounds> boundsOf(const Mod& mod, const HostOperands& operands, const ProblemOptions& options,
                                          const reference::GradientResult& want);

} // namespace attnc::cli
