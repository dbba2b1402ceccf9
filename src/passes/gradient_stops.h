// stop_gradient: which of them matter, and modules without any.
#pragma once

#include "attnc/error.h"
#include "ir/ir.h"
#include "passes/pipeline.h"

namespace attnc::passes {

bool hasGradientStops(const ir::Module& module);

/// The module for those who compute values alone: every stop_gradient is its operand, and the passes have run again, so
/// that the result is that of a mod that never had one. Errors as of runPipeline(), which goes by `options`.
Status removeGradientStops(ir::Module& module, const PipelineOptions& options = {});

} // namespace attnc::passes
