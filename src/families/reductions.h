// Outputs that a mod declares: stages behind those of any forward or decode plan, which compute the scores again, with
// the lse of their rows.
#pragma once

#include "families/family.h"

namespace attnc::plan {

/// Returns why no kernel computes the outputs of a request's mod, phrased as FamilyRow::unserved. Empty if one does, or
/// if none is asked for.
std::string unservedReductions(const Request& request);
/// The same for gradients of outputs in backward kernels with tensor cores (templates/algo/output_gradients.cuh).
std::string unservedOutputGradients(const Request& request);

/// Whether a mod has outputs that are row maxima, so that kernels with Feature::Reductions also need Feature::RowMax.
bool needsRowMax(llvm::ArrayRef<ir::Reduction> declared, const KernelOptions& options);

/// Adds the stages of a request with Feature::Reductions, and their workspace. In backward plans that is the stage for
/// rows before delta, if there is a delta.
void addReductions(Plan& plan, const Request& request);

/// Checks the tensors that receive outputs of a mod with these reductions. If `launches` is false, addresses may be
/// null. Errors are Blame::Environment.
Status checkReductions(llvm::ArrayRef<ir::Reduction> declared, const LaunchOperands& operands, bool launches);

} // namespace attnc::plan
