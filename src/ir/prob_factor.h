// In: a value computed from the parameter `score`, which stands for a weight of the softmax. Out: the factor that it
// multiplies the weight by. Not: functions of the weight that are no multiples of it.
#pragma once

#include "ir/ir.h"

#include <optional>

namespace attnc::ir {

/// Returns a value f without the parameter `score`, so that `value` is `score` times f. nullopt: none is found. It is
/// looked for through products, quotients, sums and choices.
std::optional<Value> probFactor(Module& module, Value value);

} // namespace attnc::ir
