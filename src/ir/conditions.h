// Conditions of the launch (Output::isCondition): asking them, and finding extents that meet them.
#pragma once

#include "ir/bindings.h"
#include "ir/ir.h"

#include <vector>

namespace attnc::ir {

/// The module's conditions, and no more than they need: asking them costs the same whatever else the mod computes.
Module conditionsAlone(const Module& module);

/// Whether a launch with these extents and scalars meets a condition of the module.
bool meets(const Module& module, const Bindings& launch, const Output& condition);

/// Changes extents that are free (`isFree`, like `dims` in the order of Module::dims) such that the conditions that ask
/// of extents alone hold; returns whether they do. It tries what lies near the numbers that a condition speaks of, up
/// to a number of operations, and leaves the extents of a condition that it cannot meet.
bool meetConditions(const Module& conditions, llvm::SmallVectorImpl<int64_t>& dims, const std::vector<bool>& isFree);

} // namespace attnc::ir
