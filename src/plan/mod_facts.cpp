#include "plan/mod_facts.h"

#include "passes/kv_bounds.h"

#include <vector>

namespace attnc::plan {
namespace {

/// Whether scores take a sin, cos or tan each. Its reduction of large angles is long beside the score: narrow tiles
/// have fewer copies of it to compile.
bool takesAngles(const ir::Module& module) {
  const std::vector<ir::Level> levels = ir::levels(module);
  for (uint32_t id = 0; id < module.size(); ++id) {
    const ir::Op op = module[{id}].op;
    const bool isAngle = op == ir::Op::Sin || op == ir::Op::Cos || op == ir::Op::Tan;
    if (isAngle && levels[id] == ir::Level::Element) return true;
  }
  return false;
}

Weight weightOf(const ir::Module& module) {
  const auto isScore = [&](ir::Value value) {
    return module[value].op == ir::Op::Param && ir::ParamKind(module[value].attr) == ir::ParamKind::Score;
  };
  const bool scoreChanges = module.scoreMod && !isScore(*module.scoreMod);
  if (ir::hasLoad(module, ir::Level::Element) || takesAngles(module)) return Weight::Heavy;
  if (ir::hasLoad(module, ir::Level::Column)) return Weight::Gather;
  constexpr size_t kLightMask = 12; // operations, leaves included: causal, window, prefix
  const bool maskIsLight = !module.maskMod || (module.tensors.empty() && module.size() <= kLightMask);
  if (scoreChanges || !maskIsLight) return Weight::Medium;
  return module.maskMod ? Weight::Light : Weight::None;
}

} // namespace

ModFacts modFacts(const ir::Module& module) {
  ModFacts facts;
  facts.weight = weightOf(module);
  facts.masks = module.maskMod && !(module.isConst(*module.maskMod) && module.integer(*module.maskMod));
  facts.hasBounds = passes::hasBounds(module);
  if (ir::hasLoad(module, ir::Level::Column)) facts.columnBytes = codegen::emitMod(module, algebraFor(DType::BF16)).columnBytes;
  return facts;
}

} // namespace attnc::plan
