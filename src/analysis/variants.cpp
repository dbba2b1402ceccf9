#include "analysis/variants.h"

#include "analysis/ir_names.h"
#include "ir/levels.h"
#include "ir/walk.h"

#include <llvm/ADT/STLExtras.h>

#include <set>

namespace attnc::analysis {

std::optional<Variants> findVariants(const ir::Module& module) {
  llvm::SmallVector<Value, 3> roots;
  for (const ir::OutputRole& role : {ir::kScore, ir::kMask, ir::kProbFactor})
    if (const std::optional<Value> root = module.output(role)) roots.push_back(*root);
  const std::vector<bool> needed = ir::neededBy(module, roots);
  const std::vector<ir::Level> levels = ir::levels(module);
  const auto isComparison = [&](Value value, Value which) {
    const ir::Node& node = module[value];
    return node.op == Op::Eq && node.operands[0] == which && module.isConst(node.operands[1]);
  };
  std::optional<Variants> found;
  for (uint32_t id = 0; id < module.size(); ++id) {
    const Value which{id};
    const ir::Node& node = module[which];
    if (!needed[id] || node.op != Op::Load || !ir::isInt(node.type) || node.operands.size() != 1 ||
        !module.isParam(node.operands[0], ir::ParamKind::B))
      continue;
    const int64_t choices = module.tensors[size_t(node.attr)].choices;
    std::set<int64_t> numbers;
    bool selects = false; // whether a result of the mod is selected, not just a number that it depends on
    for (uint32_t user = id; user < module.size(); ++user) {
      if (!needed[user]) continue;
      if (isComparison({user}, which)) numbers.insert(module.integer(module[{user}].operands[1]));
      selects |= module[{user}].op == Op::Select && levels[user] == ir::Level::Element &&
                 isComparison(module[{user}].operands[0], which);
    }
    Variants variants{which, {numbers.begin(), numbers.end()}, !choices};
    if (choices) llvm::erase_if(variants.numbers, [&](int64_t number) { return number < 0 || number >= choices; });
    if (variants.size() < 2 || variants.size() > kMostVariants || (!choices && (found || !selects))) continue;
    const bool isSure = choices != 0;
    if (isSure || !found) found = variants;
    if (isSure) break;
  }
  return found;
}

} // namespace attnc::analysis
