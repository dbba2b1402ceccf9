// stop_gradient: finding which ones matter, and removing all of them.
#pragma once

#include "attnc/error.h"
#include "ir/ir.h"
#include "passes/pipeline.h"

namespace attnc::passes {

bool hasGradientStops(const ir::Module& module);

/// Replaces every stop_gradient by its operand and runs the passes again, for users that need no gradients. The result
/// equals that of a mod without any stop_gradient. Errors: those of runPipeline(). `options`: for these passes.
Status removeGradientStops(ir::Module& module, const PipelineOptions& options = {});

} // namespace attnc::passes
