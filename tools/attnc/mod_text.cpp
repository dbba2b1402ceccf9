#include "mod_text.h"

#include "capture_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace attnc::cli {

const char* functionsText(const Mod& mod) {
  if (mod.hasScoreMod()) return mod.hasMaskMod() ? "score_mod, mask_mod" : "score_mod";
  return mod.hasMaskMod() ? "mask_mod" : "none (the identity)";
}

namespace {

std::string functionText(const ModFunction& function) {
  return function.line ? fmt::format("`{}` (line {})", function.name, function.line) : "`" + function.name + "`";
}

} // namespace

std::string choiceText(const ModChoice& choice) {
  constexpr size_t kMost = 8;
  std::string text =
      fmt::format("{} is {}: {}", choice.isScore ? "score_mod" : "mask_mod", functionText(choice.function), choice.why);
  for (size_t i = 0; i < std::min(choice.others.size(), kMost); ++i)
    text += (i ? ", " : "; `--mod` takes another: ") + functionText(choice.others[i]);
  return text + (choice.others.size() > kMost ? ", ..." : "");
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

std::string levelsText(const analysis::OperationCount& count) {
  constexpr ir::Level kLevels[] = {ir::Level::Launch, ir::Level::Head, ir::Level::Row, ir::Level::Column,
                                   ir::Level::Element};
  std::string text;
  for (ir::Level level : kLevels)
    if (count.at(level)) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count.at(level), ir::name(level));
  return text.empty() ? "none" : text;
}

analysis::OperationCount gradientOperations(const ir::Module& module) {
  std::vector<ir::Value> roots;
  if (auto score = module.output(ir::kScore)) roots.push_back(*score);
  const analysis::OperationCount forward = analysis::countOperations(module, roots);
  roots.push_back(*module.output(ir::kDScore));
  analysis::OperationCount more = analysis::countOperations(module, roots);
  for (size_t level = 0; level < more.byLevel.size(); ++level) more.byLevel[level] -= forward.byLevel[level];
  for (const auto& [name, times] : forward.perElement)
    if ((more.perElement[name] -= times) == 0) more.perElement.erase(name);
  return more;
}

std::string operationsText(const ir::Module& module) {
  std::string text;
  for (auto [function, role] : {std::pair("score_mod", ir::kScore), std::pair("mask_mod", ir::kMask)})
    if (auto root = module.output(role))
      text += fmt::format("operations  {}: {}\n", function, levelsText(analysis::countOperations(module, *root)));
  if (!module.output(ir::kDScore)) return text;
  const analysis::OperationCount more = gradientOperations(module);
  return text + fmt::format("operations  d_score: {}{}\n", levelsText(more),
                            more.total() ? ", beside those of score_mod" : "");
}

} // namespace attnc::cli
