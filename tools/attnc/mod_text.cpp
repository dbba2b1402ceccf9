#include "mod_text.h"

#include "capture_text.h"

#include "ir/loops.h"
#include "ir/walk.h"

#include <fmt/format.h>
#include <llvm/Support/MathExtras.h>

#include <vector>

namespace attnc::cli {

const char* functionsText(const Mod& mod) {
  if (mod.hasScoreMod()) return mod.hasMaskMod() ? "score_mod, mask_mod" : "score_mod";
  return mod.hasMaskMod() ? "mask_mod" : "none (the identity)";
}

const char* masksText(const Mod& mod) {
  return mod.module().liftsMasks ? "masks       score_mod masks: lifted into mask_mod\n" : "";
}

std::string capturesText(const Mod& mod) {
  std::string text;
  for (const CaptureInfo& capture : mod.captures())
    text += fmt::format("{:12}{}\n", text.empty() ? "captures" : "", declaration(capture));
  return text.empty() ? "captures    none\n" : text;
}

OperationCount countOperations(const ir::Module& module, llvm::ArrayRef<ir::Value> roots) {
  OperationCount count;
  const std::vector<ir::Level> levels = ir::levels(module);
  const std::vector<bool> needed = ir::neededBy(module, roots);
  const std::vector<ir::LoopSet> open = ir::openLoops(module);
  std::vector<uint64_t> times(module.size(), 0); // that a value inside sums is computed
  const auto increase = [](uint64_t& by, uint64_t amount) { by = llvm::SaturatingAdd(by, amount); };
  for (uint32_t id = uint32_t(module.size()); id-- > 0;) {
    if (!needed[id]) continue;
    const ir::Node& node = module[{id}];
    if (ir::info(node.op).cost == ir::Cost::Free) continue;
    uint64_t all = open[id] ? times[id] : 1;
    if (node.op == ir::Op::Sum) {
      all = llvm::SaturatingMultiply(all, uint64_t(ir::Loop::of(node).count)); // an addition a round
      for (ir::Value inside : ir::nodesInside(module, open, {id})) increase(times[inside.id], all);
    }
    increase(count.byLevel[size_t(levels[id])], all);
    if (levels[id] == ir::Level::Element) increase(count.perElement[ir::info(node.op).text], all);
  }
  return count;
}

std::string levelsText(const OperationCount& count) {
  constexpr ir::Level kLevels[] = {ir::Level::Launch, ir::Level::Head, ir::Level::Row, ir::Level::Column,
                                   ir::Level::Element};
  std::string text;
  for (ir::Level level : kLevels)
    if (count.at(level)) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count.at(level), ir::name(level));
  return text.empty() ? "none" : text;
}

std::string operationsText(const ir::Module& module) {
  std::string text;
  for (auto [function, role] : {std::pair("score_mod", ir::kScore), std::pair("mask_mod", ir::kMask)})
    if (auto root = module.output(role))
      text += fmt::format("operations  {}: {}\n", function, levelsText(countOperations(module, *root)));
  return text;
}

} // namespace attnc::cli
