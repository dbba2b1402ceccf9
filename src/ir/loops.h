// Which nodes run inside which sum.
//
// A node is open in the loops whose Iter it depends on, up to the sums that bind them. Open nodes are computed once per
// round of the innermost of these loops, which has the smallest id. All others are computed once, outside of every
// loop.
#pragma once

#include "ir/ir.h"

#include <bit>

namespace attnc::ir {

/// A set of loops: one bit per id. Ids are less than 64.
using LoopSet = uint64_t;

inline LoopSet only(Loop loop) { return LoopSet(1) << loop.id; }
/// Returns the id of the innermost loop. Precondition: the set is not empty.
inline unsigned innermost(LoopSet loops) { return unsigned(std::countr_zero(loops)); }

/// Returns the loops that a node is open in, given those of its operands by Value::id.
LoopSet openLoopsOf(const Node& node, llvm::ArrayRef<LoopSet> open);
/// Returns the loops that each node is open in, by Value::id.
std::vector<LoopSet> openLoops(const Module& module);

/// Returns the nodes that a sum computes in each of its rounds, in the order of the arena: those that its operand needs
/// and whose innermost open loop is the sum's. Includes inner sums, but not what runs in their rounds.
std::vector<Value> nodesInside(const Module& module, llvm::ArrayRef<LoopSet> open, Value sum);

} // namespace attnc::ir
