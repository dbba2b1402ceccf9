// What a mod computes and its author can hardly mean: masks that are constant, conditions that contradict themselves,
// scores that stand for masks, gathers that are never inside.
//
// In: a module as its text says it, and after the passes. Out: findings with the line they come from. Not: what may be
// meant, however odd; a finding is proved.
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
    FiniteMask,        ///< a large finite number where -inf would mask; `what`: the number
    GatherOutside,     ///< no index is inside the tensor; `what`: its name
  };
  Kind kind;
  uint32_t line = 0; ///< of the text; 0 if it is not known
  std::string what = {};
  int64_t axis = 0; ///< of a gather
};

std::vector<Suspicion> suspicions(const ir::Module& traced, const ir::Module& simplified);

} // namespace attnc::analysis
