// Code in a mod that its author can hardly intend: masks that are constant, conditions that contradict themselves,
// finite scores that stand for masks, gathers that are never inside.
//
// In: a module as its text says it, and after the passes. Out: findings with their source line. Every finding is
// proven. Not: code that may be intended, however odd.
#pragma once

#include "ir/ir.h"

#include <string>
#include <vector>

namespace attnc::analysis {

struct Suspicion {
  enum class Kind {
    MaskAlwaysTrue,
    MaskAlwaysFalse,
    ConditionNeverMet, ///< `what`: "this condition", or "this condition and those before it"
    FiniteMask,        ///< a large finite number instead of -inf; `what`: the number
    GatherOutside,     ///< no index is inside the tensor; `what`: its name
  };
  Kind kind;
  uint32_t line = 0; ///< line of the text; 0 if unknown
  std::string what = {};
  int64_t axis = 0; ///< axis of a gather
};

std::vector<Suspicion> suspicions(const ir::Module& traced, const ir::Module& simplified);

} // namespace attnc::analysis
