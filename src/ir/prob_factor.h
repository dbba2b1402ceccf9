// In: a value computed from the parameter `score`, which stands for a weight of the softmax. Out: the factor that it
// multiplies the weight by. Not: functions of the weight that are no multiples of it.
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
/// Replaces the output kProb, if there is one, by kProbFactor. Returns false if no factor is found.
bool factorProb(Module& module);

} // namespace attnc::ir
