// Rebuilding: how passes write a module anew. Nodes that no root needs do not come along.
#pragma once

#include "ir/ir.h"

#include <vector>

namespace attnc::passes {

/// A module with the same declarations and no nodes.
ir::Module declarationsOf(const ir::Module& module);

/// Marks the nodes that the roots need, by Value::id.
std::vector<bool> reachable(const ir::Module& module);

/// Writes the module anew: `rewrite(out, node)` gets each needed node in order, with its operands as values of `out`,
/// and returns what stands for it in `out`.
template <class Rewrite> ir::Module rebuild(const ir::Module& module, Rewrite&& rewrite) {
  ir::Module out = declarationsOf(module);
  std::vector<bool> needed = reachable(module);
  std::vector<ir::Value> now(module.size());
  for (uint32_t id = 0; id < module.size(); ++id) {
    if (!needed[id]) continue;
    ir::Node node = module[{id}];
    for (ir::Value& operand : node.operands) operand = now[operand.id];
    now[id] = rewrite(out, static_cast<const ir::Node&>(node));
  }
  if (module.scoreMod) out.scoreMod = now[module.scoreMod->id];
  if (module.maskMod) out.maskMod = now[module.maskMod->id];
  return out;
}

/// The node as it is: what a rewrite returns where it has nothing to do.
inline ir::Value keep(ir::Module& out, const ir::Node& node) {
  return out.make(node.op, node.type, node.operands, node.attr, node.line);
}

} // namespace attnc::passes
