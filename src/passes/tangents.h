// Forward-mode differentiation: tangents of score_mod and of its gradients as outputs of the module.
//
// A tangent is the derivative along a direction: that of the score (the parameter score_tangent), of grad
// (grad_tangent), and of each captured float NAME, which the capture NAME_tangent holds. In: a module with d_score
// (autodiff.h). Out: with the outputs
//
//   t_score      tangent of score_mod's result; ir::kTScore
//   t_d_score    tangent of d_score; ir::kTDScore
//
// and, as the value of each place of a capture's gradient, the tangent of that value. The rules are those of ops.def:
// a tangent is the sum over operands of their share of a gradient that is the operand's tangent. stop_gradient passes
// no tangent on.
#pragma once

#include "attnc/error.h"
#include "ir/capture_gradient.h"
#include "ir/ir.h"

namespace attnc::passes {

/// Adds the outputs above and declares NAME_tangent, like NAME, for each captured float tensor and scalar, in the
/// module's order. Errors: a capture has one of these names (mod); more than kMaxCaptures (environment).
Status addTangents(ir::Module& module, llvm::ArrayRef<ir::CaptureGradient> places);

} // namespace attnc::passes
