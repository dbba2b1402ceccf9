// Factors of score_mod that heads know: score_mod = out * f(in * score). A soft cap cap * tanh(score / cap) has both.
//
// In: a module after the passes. Out: the factors where they stand. Only such an `out` is found as may be made
// positive, so that the greatest f belongs to the greatest score: a positive number, or any factor of an odd f, which
// takes the sign: -3 tanh(x) = 3 tanh(-x). Not: sums in or around f, which stay in it.
#pragma once

#include "ir/ir.h"

#include <llvm/ADT/SmallVector.h>

#include <optional>

namespace attnc::analysis {

struct ScoreFactors {
  /// Known per head.
  struct Factor {
    ir::Value value;
    bool divides = false;
    uint32_t line = 0; ///< of the mod's text
  };
  llvm::SmallVector<Factor, 2> in; ///< of the score itself, in the order in which they are applied
  std::optional<Factor> out;
  bool signUnknown = false;       ///< of `out`; f is odd then
  std::optional<ir::Value> inner; ///< the score times `in`; nothing if the mod does not use the score
  ir::Value body;                 ///< f of `inner`
};

/// Nothing where there is no factor, or where f would be the score itself.
std::optional<ScoreFactors> scoreFactors(const ir::Module& module);

} // namespace attnc::analysis
