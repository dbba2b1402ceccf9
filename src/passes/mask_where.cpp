#include "passes/mask_where.h"

#include "ir/walk.h"
#include "passes/pass.h"
#include "passes/pipeline.h"
#include "passes/rebuild.h"

namespace attnc::passes {

using ir::Node;
using ir::Op;
using ir::ParamKind;
using ir::Value;

Expected<ir::Module> assuming(const ir::Module& module, llvm::function_ref<std::optional<bool>(Value)> taken) {
  ir::Module result = module.declarations();
  const Value root = *module.output(ir::kMask);
  const std::vector<bool> needed = ir::neededBy(module, root, [&](Value value) { return taken(value).has_value(); });
  std::vector<Value> now(module.size());
  for (uint32_t id = 0; id <= root.id; ++id) {
    if (!needed[id]) continue;
    Node node = module[{id}];
    if (const std::optional<bool> known = taken({id})) {
      now[id] = result.constBool(*known);
      continue;
    }
    for (Value& operand : node.operands) operand = now[operand.id];
    now[id] = keep(result, node);
  }
  result.setOutput(ir::kMask, now[root.id]);
  std::vector<Pass> order;
  for (const char* name : {"fold-constants", "simplify", "cse", "levels", "simplify", "cse", "dce"})
    order.push_back(*findPass(name));
  if (Status ok = runPasses(result, order, {}); !ok) return std::move(ok).error();
  return result;
}

Expected<ir::Module> maskWhere(const ir::Module& module, const analysis::GridsUsed& grids, bool isQueryIn, bool isKeyIn) {
  return assuming(module, [&](Value value) -> std::optional<bool> {
    const Node& node = module[value];
    if (node.op != Op::InGrid) return std::nullopt;
    const unsigned grid = ir::GridAxis::of(node).grid;
    if (grid == grids.queries && module.isParam(node.operands[0], ParamKind::QIdx)) return isQueryIn;
    if (grid == grids.keys && module.isParam(node.operands[0], ParamKind::KvIdx)) return isKeyIn;
    return std::nullopt;
  });
}

} // namespace attnc::passes
