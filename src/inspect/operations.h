// Operations of modules as data.
#pragma once

#include "attnc/explain.h"
#include "ir/ir.h"

namespace attnc {

/// Counts the operations of the functions that the module has. Of d_score, those that score_mod does not also need.
ModOperations operationsOf(const ir::Module& module);

/// Returns the mods that a mod chooses between by the sequence. `module`: after the passes. Errors (internal): a pass
/// failed.
Expected<std::vector<ModVariant>> variantsOf(const ir::Module& module);

/// Returns each operation of the functions that the module has, function by function, in order of computation.
std::vector<ModOperation> placesOf(const ir::Module& module);

/// Counts the operations for each score. `module` is what the hooks of the kernel leave of the mod (plan::KernelMod).
/// `hasFullBlocks`: whether the lists that it walks tell full blocks.
ScoreCost scoreCostOf(const ir::Module& module, KvLoop loop, bool hasFullBlocks = false);

} // namespace attnc
