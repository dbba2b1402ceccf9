#include "ir/levels.h"

#include "ir/loops.h"
#include "ir/visits.h"

namespace attnc::ir {

Level levelOf(const Node& node, llvm::ArrayRef<Level> levels) {
  Level level = node.op == Op::Param ? levelOf(ParamKind(node.attr)) : Level::Launch;
  for (Value operand : node.operands) level = join(level, levels[operand.id]);
  return level;
}

std::vector<Level> levels(const Module& module) {
  visits += module.size();
  std::vector<Level> result;
  result.reserve(module.size());
  for (uint32_t id = 0; id < module.size(); ++id) result.push_back(levelOf(module[{id}], result));
  const std::vector<LoopSet> open = openLoops(module);
  for (uint32_t id = uint32_t(module.size()); id-- > 0;)
    for (Value operand : module[{id}].operands)
      if (open[operand.id]) result[operand.id] = join(result[operand.id], result[id]);
  return result;
}

} // namespace attnc::ir
