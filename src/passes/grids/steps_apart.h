// Masks whose keys are a multiple of a step away from their query.
#pragma once

#include "ir/ir.h"

#include <optional>

namespace attnc::passes {

/// A mask that asks for quotients and remainders of positions by `step`, from which find-grids makes a grid.
struct StepsApart {
  ir::Module module;
  int64_t step = 1;
};

/// Returns the module with bounds of q_idx - kv_idx in quotients, if mask_mod is a conjunction that has them,
/// and a part by which the difference is a multiple of a constant:
///
///   q % 4 == k % 4  &  q - 60 <= k     =>     q % 4 == k % 4  &  q // 4 - 15 <= k // 4
///
/// Nullopt for other masks. `module`: behind the passes, without grids.
std::optional<StepsApart> stepsApart(const ir::Module& module);

} // namespace attnc::passes
