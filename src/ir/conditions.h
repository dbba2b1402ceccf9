// Conditions of the launch (Output::isCondition): checking them, and finding extents that meet them.
#pragma once

#include "ir/bindings.h"
#include "ir/ir.h"

#include <vector>

namespace attnc::ir {

/// Returns a module with only the conditions and what they need, so that checking them does not depend on the mod's
/// size.
Module conditionsAlone(const Module& module);

/// Whether a launch with these extents and scalars meets a condition of the module.
bool meets(const Module& module, const Bindings& launch, const Output& condition);

/// Changes free extents so that all conditions on extents hold. Returns whether they do. `isFree`: in the order of
/// Module::dims, like `dims`. Tries values near the numbers in a condition, up to a number of operations; leaves the
/// extents of a condition that it cannot meet.
bool meetConditions(const Module& conditions, llvm::SmallVectorImpl<int64_t>& dims, const std::vector<bool>& isFree);

} // namespace attnc::ir
