// The two walks of a mod with a prob_mod that is no multiple of the weight (ir::kProbWeight).
//
// In: a module after the passes, with prob_weight. Out: two modules after the passes. The first is the mod without
// prob_mod, whose launch finds lse. The second has the weight that multiplies v as its score, and no softmax:
//
//   score = select(score != -inf, prob_weight(prob = exp(score - attnc_lse[b, h, row])), 0),   is_weight = true
//
// Scores of -inf, and masked ones, weigh 0. In rows whose lse is NaN, `prob` is NaN.
#pragma once

#include "attnc/error.h"
#include "ir/ir.h"

namespace attnc::passes {

Expected<ir::Module> firstWalk(const ir::Module& module);
/// Declares ir::kLseTensor as the last tensor: [B, H, Q_LEN], or for ragged batches [1, H, rows], whose extent is then
/// the last dim. Error (environment): more than kMaxCaptures.
Expected<ir::Module> secondWalk(const ir::Module& module);

} // namespace attnc::passes
