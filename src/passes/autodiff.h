// Reverse-mode differentiation: gradients of score_mod and sink_mod as outputs of the module.
//
// In: a module after the passes. Out: the same module with more outputs, after the passes again. So gradients are
// simplified and share common values with the forward. `grad` is the gradient that the result of score_mod received:
//
//   d_score       gradient of the score; ir::kDScore
//   d_<name>_<i>  gradient of the i-th place where score_mod reads the captured float tensor or scalar `name`
//   ds_<name>_<i> the same for sink_mod, where `grad` is the gradient that its result received
//   d_prob        gradient of a weight of the softmax by prob_mod, where `grad` is that of its result; ir::kDProb
//   dp_<name>_<i> the same as d_<name>_<i> for prob_mod, if the module has prob_weight
//   do_<name>_<i> the same for outputs of the mod: the gradient itself (passes/output_gradients.h)
//
// The gradient of a capture sums the gradients of its places over all elements of attention, each added at the index
// read. A place inside sums is read in many rounds: its outputs are also functions of `round`.
//
// The rules are in ops.def; dsl/SPEC.md, section 10, defines gradients at kinks. Indices, conditions, masks and
// stop_gradient pass no gradient on. The branch of a select that is not taken gets 0, whatever its derivative is.
// Gradients of masked elements are unspecified; callers must leave them out of sums.
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
  std::vector<CaptureGradient> captures; ///< those of outputs, of prob_mod, of sink_mod, then those of score_mod; by
                                         ///< capture in the requested order
};

/// Returns the names of the captured float tensors and scalars, in the module's order.
std::vector<std::string> floatCaptures(const ir::Module& module);

/// Returns the module with d_score and with an output for each place of `captures` that a gradient reaches. A capture
/// without a place has the gradient 0. Errors: those of runPipeline() and addTangents(); Blame::Mod for a place that is
/// read in 2^31 rounds or more. `options`: for the passes that run afterwards. `withTangents`: see tangents.h.
/// `withOutputs`: whether sums that the mod declares as outputs have gradients; see output_gradients.h.
Expected<Gradients> differentiate(const ir::Module& module, llvm::ArrayRef<std::string> captures = {},
                                  const PipelineOptions& options = {}, bool withTangents = false,
                                  bool withOutputs = false);

/// differentiate() for a factor of a low-rank term, q_factor or kv_factor, an output of the module. Adds only the
/// places of the captures in it, which are functions of `round`. Declarations keep their order.
Expected<Gradients> differentiateFactor(const ir::Module& module, const ir::OutputRole& factor,
                                        llvm::ArrayRef<std::string> captures);

/// Whether d_score is anything but 0. The module comes from differentiate().
bool hasScoreGradient(const ir::Module& module);

} // namespace attnc::passes
