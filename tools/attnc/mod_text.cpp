#include "mod_text.h"

#include "capture_text.h"

#include <fmt/format.h>

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

std::string levelsText(const analysis::OperationCount& count) {
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
      text += fmt::format("operations  {}: {}\n", function, levelsText(analysis::countOperations(module, *root)));
  return text;
}

} // namespace attnc::cli
