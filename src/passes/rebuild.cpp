#include "passes/rebuild.h"

namespace attnc::passes {

ir::Module declarationsOf(const ir::Module& module) {
  ir::Module result;
  result.sourceName = module.sourceName;
  result.liftsMasks = module.liftsMasks;
  result.dims = module.dims;
  result.tensors = module.tensors;
  result.scalars = module.scalars;
  return result;
}

std::vector<bool> reachable(const ir::Module& module) {
  std::vector<bool> needed(module.size(), false);
  if (module.scoreMod) needed[module.scoreMod->id] = true;
  if (module.maskMod) needed[module.maskMod->id] = true;
  for (uint32_t id = uint32_t(module.size()); id-- > 0;)
    if (needed[id])
      for (ir::Value operand : module[{id}].operands) needed[operand.id] = true;
  return needed;
}

} // namespace attnc::passes
