#include "analysis/operation_count.h"

#include "ir/levels.h"
#include "ir/loops.h"
#include "ir/walk.h"

#include <llvm/Support/MathExtras.h>

#include <vector>

namespace attnc::analysis {

OperationCount countOperations(const ir::Module& module, llvm::ArrayRef<ir::Value> roots) {
  OperationCount count;
  const std::vector<ir::Level> levels = ir::levels(module);
  const std::vector<bool> needed = ir::neededBy(module, roots);
  const std::vector<ir::LoopSet> open = ir::openLoops(module);
  std::vector<uint64_t> times(module.size(), 0); // how often each value is computed, counting rounds of sums around it
  const auto increase = [](uint64_t& by, uint64_t amount) { by = llvm::SaturatingAdd(by, amount); };
  for (uint32_t id = uint32_t(module.size()); id-- > 0;) {
    if (!needed[id]) continue;
    const ir::Node& node = module[{id}];
    if (ir::info(node.op).cost.isFree()) continue;
    uint64_t all = open[id] ? times[id] : 1;
    if (node.op == ir::Op::Sum) {
      all = llvm::SaturatingMultiply(all, uint64_t(ir::Loop::of(node).count)); // one addition per round
      for (ir::Value inside : ir::nodesInside(module, open, {id})) increase(times[inside.id], all);
    }
    increase(count.byLevel[size_t(levels[id])], all);
    if (levels[id] == ir::Level::Element) increase(count.perElement[ir::info(node.op).text], all);
  }
  return count;
}

uint64_t OperationCount::total() const {
  uint64_t sum = 0;
  for (uint64_t count : byLevel) sum = llvm::SaturatingAdd(sum, count);
  return sum;
}

} // namespace attnc::analysis
