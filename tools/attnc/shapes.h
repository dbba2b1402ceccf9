// The shapes and layouts that kernels are chosen for, without tensors.
#pragma once

#include "operands.h"
#include "run_options.h"

#include "attnc/operands.h"

namespace attnc::cli {

/// The shapes and layouts of operands and their results, without addresses: what a kernel is chosen for.
struct Shapes {
  BackwardOperands operands;
  Outputs outputs;
  BackwardOutputs gradients;
};
/// `operands` must live as long.
Shapes shapesOf(const HostOperands& operands, const RunOptions& options);
/// The same for a problem without tensors, laid out as every family takes them.
Shapes shapesOf(const ProblemShape& problem, const TargetOptions& target, const SequenceOptions& sequences);

} // namespace attnc::cli
