// The shapes and layouts that kernels are chosen for, without tensors.
#pragma once

#include "problem/operands.h"
#include "problem/problem_options.h"

#include "attnc/compiler.h"
#include "attnc/stages.h"

namespace attnc::cli {

/// The shapes and layouts of operands and their results, without memory. A kernel is chosen for these. Addresses are
/// null, but those of k and v are equal if v is a view of k.
using Shapes = LaunchShape;
/// Returns the shapes of operands, which must outlive the result.
Shapes shapesOf(const HostOperands& operands, const ProblemOptions& options);
/// Returns the shapes of a problem without tensors, laid out so that every family takes them.
Shapes shapesOf(const ProblemShape& problem, const TargetOptions& target, const SequenceOptions& sequences);

/// Settles the kernels of a launch of these shapes, with a backward pass those of training.
Expected<Preparation> settle(const Compiler& compiler, const Mod& mod, const Shapes& shapes,
                             const PrepareOptions& options, bool isBackward);

} // namespace attnc::cli
