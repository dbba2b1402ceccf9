// Gradients of outputs of a mod: of its sums over live scores (ir/reductions.h). Maxima have none.
//
// A loss that reads a sum NAME gives it a gradient, a tensor like the output, which the capture NAME_gradient holds.
// The loss is then the sum over live scores of
//
//   output_loss   sum over NAME of NAME_gradient at the element's place * the value that NAME sums
//
// which autodiff.h differentiates by `prob` and `score` (ir::kProbGradient, ir::kScoreGradient), and by captures.
#pragma once

#include "attnc/error.h"
#include "ir/ir.h"
#include "ir/reductions.h"

namespace attnc::passes {

inline constexpr ir::OutputRole kOutputLoss = {"output_loss", ir::Type::F32, ir::kReductionParams};

/// Declares a tensor of f32 that keeps the same axes as a reduction, and returns its element at the place of a score.
/// In modules of ragged batches, the shape is that of packed rows, with a further dim. Error (environment): more than
/// kMaxCaptures.
Expected<ir::Value> loadAtScore(ir::Module& module, std::string name, ir::Kept kept);

/// Adds the output above, and declares NAME_gradient for each sum, f32 with the shape of the output. A sum has no
/// gradient if a capture has the name. Errors (environment): no sum has one; more than kMaxCaptures.
Status addOutputLoss(ir::Module& module);

} // namespace attnc::passes
