#include "plan/mod_facts.h"

#include "passes/kv_bounds.h"

#include <vector>

namespace attnc::plan {
namespace {

/// Whether scores take a sin, cos or tan each, which is long beside the score: narrow tiles have fewer copies of it to
/// compile.
bool takesAngles(const ir::Module& module) {
  const std::vector<ir::Level> levels = ir::levels(module);
  for (uint32_t id = 0; id < module.size(); ++id)
    if (ir::info(module[{id}].op).cost == ir::Cost::Long && levels[id] == ir::Level::Element) return true;
  return false;
}

Weight weightOf(const ir::Module& module) {
  const std::optional<ir::Value> score = module.output(ir::kScore);
  const bool scoreChanges = score && !isScore(module, *score);
  if (ir::hasLoad(module, ir::Level::Element) || takesAngles(module)) return Weight::Heavy;
  if (ir::hasLoad(module, ir::Level::Column)) return Weight::Gather;
  constexpr size_t kLightMask = 12; // operations, leaves included: causal, window, prefix
  const bool hasMask = module.output(ir::kMask).has_value();
  const bool maskIsLight = !hasMask || (module.tensors.empty() && module.size() <= kLightMask);
  if (scoreChanges || !maskIsLight) return Weight::Medium;
  return hasMask ? Weight::Light : Weight::None;
}

} // namespace

ModFacts modFacts(const ir::Module& module) {
  ModFacts facts;
  facts.weight = weightOf(module);
  const std::optional<ir::Value> mask = module.output(ir::kMask);
  facts.masks = mask && !(module.isConst(*mask) && module.integer(*mask));
  facts.hasBounds = passes::hasBounds(module);
  if (ir::hasLoad(module, ir::Level::Column)) facts.columnBytes = codegen::emitMod(module, algebraFor(DType::BF16)).columnBytes;
  return facts;
}

} // namespace attnc::plan
