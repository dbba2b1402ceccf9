// Factors of score_mod that are known per head: score_mod = out * f(in * score). A soft cap cap * tanh(score / cap) has
// both.
//
// In: a module after the passes. Out: the factors and where they are. `out` must be positive, or f must be odd, so that
// f can take the sign: -3 tanh(x) = 3 tanh(-x). Then the greatest f belongs to the greatest score. Not: sums in or
// around f, which stay in f.
#pragma once

#include "ir/ir.h"

#include <llvm/ADT/SmallVector.h>

#include <optional>

namespace attnc::analysis {

struct ScoreFactors {
  /// A factor that is known per head.
  struct Factor {
    ir::Value value;
    bool divides = false;
    uint32_t line = 0; ///< line of the mod's text
  };
  llvm::SmallVector<Factor, 2> in; ///< factors of the score itself, in the order of application
  std::optional<Factor> out;
  bool signUnknown = false;       ///< of `out`; f is then odd
  std::optional<ir::Value> inner; ///< the score times `in`; unset if the mod does not use the score
  ir::Value body;                 ///< f(inner)
};

/// Returns nullopt if there is no factor, or if f would be the score itself.
std::optional<ScoreFactors> scoreFactors(const ir::Module& module);

} // namespace attnc::analysis
