#include "analysis/operation_count.h"

#include "ir/levels.h"
#include "ir/loops.h"
#include "ir/walk.h"

#include <llvm/Support/MathExtras.h>

#include <vector>

namespace attnc::analysis {

std::vector<uint64_t> timesComputed(const ir::Module& module, llvm::ArrayRef<ir::Value> roots) {
  const std::vector<bool> needed = ir::neededBy(module, roots);
  const std::vector<ir::LoopSet> open = ir::openLoops(module);
  std::vector<uint64_t> rounds(module.size(), 0), times(module.size(), 0);
  for (uint32_t id = uint32_t(module.size()); id-- > 0;) {
    if (!needed[id]) continue;
    const ir::Node& node = module[{id}];
    if (ir::info(node.op).cost.isFree()) continue;
    times[id] = open[id] ? rounds[id] : 1;
    if (node.op != ir::Op::Sum) continue;
    times[id] = llvm::SaturatingMultiply(times[id], uint64_t(ir::Loop::of(node).count)); // one addition per round
    for (ir::Value inside : ir::nodesInside(module, open, {id}))
      rounds[inside.id] = llvm::SaturatingAdd(rounds[inside.id], times[id]);
  }
  return times;
}

OperationCount countOperations(const ir::Module& module, llvm::ArrayRef<ir::Value> roots) {
  OperationCount count;
  const std::vector<ir::Level> levels = ir::levels(module);
  const std::vector<uint64_t> times = timesComputed(module, roots);
  const auto increase = [](uint64_t& by, uint64_t amount) { by = llvm::SaturatingAdd(by, amount); };
  for (uint32_t id = 0; id < module.size(); ++id) {
    if (!times[id]) continue;
    increase(count.byLevel[size_t(levels[id])], times[id]);
    if (levels[id] == ir::Level::Element) increase(count.perElement[ir::info(module[{id}].op).text], times[id]);
  }
  return count;
}

uint64_t OperationCount::total() const {
  uint64_t sum = 0;
  for (uint64_t count : byLevel) sum = llvm::SaturatingAdd(sum, count);
  return sum;
}

} // namespace attnc::analysis
