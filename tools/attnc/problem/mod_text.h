// A mod as text: its functions, its captures, its operations by level.
#pragma once

#include "attnc/explain.h"

#include <fmt/format.h>

#include <string>

namespace attnc::cli {

/// Returns a line for each of `all`, by lineOf(one), behind a label of the first: "gathers     ...".
template <class All, class LineOf> std::string labelled(const char* label, const All& all, LineOf lineOf) {
  std::string text;
  for (const auto& one : all) text += fmt::format("{:12}{}\n", text.empty() ? label : "", lineOf(one));
  return text;
}

/// Returns "score_mod, mask_mod".
std::string functionsText(const Mod& mod);

/// Returns "mask_mod is and_masks(causal, document) (line 24), given to `create_block_mask` in line 24; also there:
/// causal (line 3)".
std::string choiceText(const ModChoice& choice);

/// Returns lines about the masks of score_mod, which went elsewhere, and about a second walk; empty without these.
std::string masksText(const Mod& mod);

/// Returns lines "captures    slopes: f32[H]", one a capture.
std::string capturesText(const Mod& mod);

/// Returns "1 head, 2 element", or "none".
std::string levelsText(const OperationCounts& count);

/// Returns lines "operations  score_mod: 1 head, 2 element", one for each function that the mod has, and one for
/// d_score.
std::string operationsText(const ModOperations& operations, const Mod& mod);
/// Returns a line "choice" for each mod that a mod chooses between; empty if it has one.
std::string variantsText(const std::vector<ModVariant>& variants);

} // namespace attnc::cli
