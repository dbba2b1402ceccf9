// prob_mod and weight_mod as outputs of a module.
//
// In: a value computed from the parameter `score`, which stands for a weight of the softmax. Out: the factor that it
// multiplies the weight by; for functions of the weight that are no multiples of it, these as functions of the
// parameter `prob`. For a weight_mod, `score` is what score_mod returns. Out: the weight as a function of the score
// before score_mod.
#pragma once

#include "ir/ir.h"

#include <optional>
#include <string_view>

namespace attnc::ir {

/// Returns a value f without the parameter `score`, so that `value` is `score` times f. nullopt: none is found. It is
/// looked for through products, quotients, sums and choices.
std::optional<Value> probFactor(Module& module, Value value);

/// Name of the output of IR text that is what a prob_mod returns, with the weight in place of the score.
inline constexpr std::string_view kProb = "prob";
/// Makes a value what a prob_mod returns, with the weight in place of the score: sets kProbFactor if it is a multiple
/// of the weight, else kProbWeight.
void setProb(Module& module, Value value);

/// Name of the output of IR text that is what a weight_mod returns.
inline constexpr std::string_view kWeight = "weight";
/// Replaces the output kWeight, if there is one, by the weight as kScore, and kIsWeight. Where score_mod writes -inf,
/// it is 0.
void composeWeight(Module& module);

} // namespace attnc::ir
