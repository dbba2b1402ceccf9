#include "problem/mod_text.h"

#include "problem/capture_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace attnc::cli {

std::string functionsText(const Mod& mod) {
  std::vector<const char*> names;
  if (mod.hasScoreMod()) names.push_back(mod.hasWeightMod() ? "weight_mod" : "score_mod");
  if (mod.hasMaskMod()) names.push_back("mask_mod");
  if (mod.hasProbMod()) names.push_back("prob_mod");
  if (mod.hasSinkMod()) names.push_back("sink_mod");
  return names.empty() ? "none (the identity)" : fmt::format("{}", fmt::join(names, ", "));
}

namespace {

std::string functionText(const ModFunction& function) {
  return function.line ? fmt::format("`{}` (line {})", function.name, function.line) : "`" + function.name + "`";
}

} // namespace

std::string choiceText(const ModChoice& choice) {
  constexpr size_t kMost = 8;
  std::string text = fmt::format("{} is {}: {}", choice.kind, functionText(choice.function), choice.why);
  for (size_t i = 0; i < std::min(choice.others.size(), kMost); ++i)
    text += (i ? ", " : "; `--mod` takes another: ") + functionText(choice.others[i]);
  return text + (choice.others.size() > kMost ? ", ..." : "");
}

std::string masksText(const Mod& mod) {
  return std::string(mod.masksLifted() ? "masks       score_mod masks: lifted into mask_mod\n" : "") +
         (mod.walksTwice() ? "walks       two: prob_mod is no multiple of prob, so the first finds lse\n" : "");
}

std::string capturesText(const Mod& mod) {
  const std::string text = labelled("captures", mod.captures(), declaration);
  return (text.empty() ? "captures    none\n" : text) +
         labelled("outputs", mod.reductions(), [](const CaptureInfo& output) {
           const bool isOfKeys = output.extent.back() == "KV_LEN";
           return declaration(output) +
                  (isOfKeys ? ", by a walk along Q" : ", by a walk along KV unless it is the largest score");
         });
}

std::string levelsText(const OperationCounts& count) {
  std::string text;
  for (auto [level, times] : {std::pair("launch", count.launch),
                              {"head", count.head},
                              {"row", count.row},
                              {"column", count.column},
                              {"element", count.element}})
    if (times) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", times, level);
  return text.empty() ? "none" : text;
}

std::string operationsText(const ModOperations& operations, const Mod& mod) {
  std::string text;
  if (operations.scoreMod)
    text += fmt::format("operations  {}: {}\n", mod.hasWeightMod() ? "weight_mod" : "score_mod",
                        levelsText(*operations.scoreMod));
  if (operations.maskMod) text += fmt::format("operations  mask_mod: {}\n", levelsText(*operations.maskMod));
  if (operations.sinkMod) text += fmt::format("operations  sink_mod: {}\n", levelsText(*operations.sinkMod));
  if (operations.probMod) text += fmt::format("operations  prob_mod: {}\n", levelsText(*operations.probMod));
  if (!operations.dScore) return text;
  const std::string more = levelsText(*operations.dScore);
  return text + fmt::format("operations  d_score: {}{}\n", more, more == "none" ? "" : ", beside those of score_mod");
}

std::string variantsText(const std::vector<ModVariant>& variants) {
  return labelled("choice", variants, [](const ModVariant& variant) {
    std::string text;
    for (auto [name, count] : {std::pair("score_mod", &variant.operations.scoreMod),
                               {"mask_mod", &variant.operations.maskMod},
                               {"prob_mod", &variant.operations.probMod}})
      if (*count) text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", name, levelsText(**count));
    return variant.when + ": " + text;
  });
}

} // namespace attnc::cli
