// The fp64 reference over the operands of a run.
#pragma once

#include "operands.h"
#include "run_options.h"

#include "reference/gradients.h"

namespace attnc::cli {

/// Runs the reference; without --backward, only the forward pass.
Expected<reference::GradientResult> runReference(const Mod& mod, const HostOperands& operands,
                                                 const RunOptions& options);

} // namespace attnc::cli
