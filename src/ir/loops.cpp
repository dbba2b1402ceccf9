#include "ir/loops.h"

#include "ir/visits.h"

#include <llvm/ADT/DenseSet.h>

#include <algorithm>

namespace attnc::ir {

LoopSet openLoopsOf(const Node& node, llvm::ArrayRef<LoopSet> open) {
  LoopSet result = node.op == Op::Iter ? only(Loop::of(node)) : 0;
  for (Value operand : node.operands) result |= open[operand.id];
  return node.op == Op::Sum ? result & ~only(Loop::of(node)) : result;
}

std::vector<LoopSet> openLoops(const Module& module) {
  visits += module.size();
  std::vector<LoopSet> open;
  open.reserve(module.size());
  for (uint32_t id = 0; id < module.size(); ++id) open.push_back(openLoopsOf(module[{id}], open));
  return open;
}

std::vector<Value> nodesInside(const Module& module, llvm::ArrayRef<LoopSet> open, Value sum) {
  const Loop loop = Loop::of(module[sum]);
  llvm::DenseSet<uint32_t> seen;
  llvm::SmallVector<Value, 16> left = {module[sum].operands[0]};
  std::vector<Value> inside;
  while (!left.empty()) {
    Value value = left.pop_back_val();
    if (!(open[value.id] & only(loop)) || !seen.insert(value.id).second) continue;
    if (innermost(open[value.id]) == loop.id) inside.push_back(value);
    left.append(module[value].operands.begin(), module[value].operands.end());
  }
  std::sort(inside.begin(), inside.end(), [](Value a, Value b) { return a.id < b.id; });
  return inside;
}

} // namespace attnc::ir
