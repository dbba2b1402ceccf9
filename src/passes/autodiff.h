// Reverse-mode differentiation: gradients of score_mod as outputs of the module.
//
// In: a module after the passes. Out: the same with more outputs, after the passes again, so that gradients are
// simplified and share what they have in common with the forward. For `grad`, what the result of score_mod got:
//
//   d_score       of the score; ir::kDScore
//   d_<name>_<i>  of the i-th place where score_mod reads the captured float tensor or scalar `name`
//
// The gradient of a capture is the sum over all elements of attention of its places, each added at the index that it
// reads. A place inside sums is read in many rounds: its outputs are functions of `round`, too.
//
// Rules: ops.def has them; dsl/SPEC.md, section 10, says what they are at kinks. Indices, conditions, masks and what stop_gradient
// marks pass nothing on. The branch of a select that is not taken gets 0, whatever its derivative is. Of masked
// elements the gradients may be anything: who adds them up leaves these out.
#pragma once

#include "attnc/error.h"
#include "ir/capture_gradient.h"
#include "ir/ir.h"
#include "passes/pipeline.h"

#include <string>
#include <vector>

namespace attnc::passes {

using ir::CaptureGradient;

struct Gradients {
  ir::Module module;                     ///< without stop_gradient
  std::vector<CaptureGradient> captures; ///< by capture in the order in which they were asked for, then by place
};

/// The names of the captured float tensors and scalars, in the module's order.
std::vector<std::string> floatCaptures(const ir::Module& module);

/// The module with d_score and, for each capture of `captures`, an output for each place where a gradient arrives. A
/// capture without a place has the gradient 0. Errors: those of runPipeline(); Blame::Mod for a place that is read in
/// 2^31 rounds or more. `options`: of the passes that run afterwards.
Expected<Gradients> differentiate(const ir::Module& module, llvm::ArrayRef<std::string> captures = {},
                                  const PipelineOptions& options = {});

/// Whether d_score is anything but 0, in a module that differentiate() made.
bool hasScoreGradient(const ir::Module& module);

} // namespace attnc::passes
