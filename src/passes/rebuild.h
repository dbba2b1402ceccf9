// Rebuilding: how passes rewrite a module. Nodes that no output needs are dropped.
#pragma once

#include "ir/walk.h"

#include <vector>

namespace attnc::passes {

/// Returns the rewritten module. `rewrite(out, node)` receives each needed node in order, with its operands as values
/// of `out`, and returns its replacement in `out`.
template <class Rewrite> ir::Module rebuild(const ir::Module& module, Rewrite&& rewrite) {
  ir::Module out = module.declarations();
  const std::vector<bool> needed = ir::neededByOutputs(module);
  std::vector<ir::Value> now(module.size());
  for (uint32_t id = 0; id < module.size(); ++id) {
    if (!needed[id]) continue;
    ir::Node node = module[{id}];
    for (ir::Value& operand : node.operands) operand = now[operand.id];
    now[id] = rewrite(out, static_cast<const ir::Node&>(node));
  }
  for (ir::Output output : module.outputs()) {
    output.value = now[output.value.id];
    out.setOutput(std::move(output));
  }
  return out;
}

/// Copies the node unchanged: the default of a rewrite.
inline ir::Value keep(ir::Module& out, const ir::Node& node) {
  return out.make(node.op, node.type, node.operands, node.attr, node.line);
}

} // namespace attnc::passes
