// The level at which each value of a module becomes known.
#pragma once

#include "ir/ir.h"

#include <vector>

namespace attnc::ir {

/// Returns the level of a node, given those of its operands by Value::id. Nodes inside a sum are treated as if outside.
Level levelOf(const Node& node, llvm::ArrayRef<Level> levels);
/// Returns the level at which every node of the module is computed, by Value::id: launch (scalars, dims), head (b, h),
/// row (q_idx), column (kv_idx), element (score, or row and column together). Nodes that depend on the index of a sum
/// are computed with the sum.
std::vector<Level> levels(const Module& module);
} // namespace attnc::ir
