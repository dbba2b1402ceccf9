// What a score_mod makes of scores, for a terminal.
#pragma once

#include "show/score_map.h"

#include "attnc/block_mask.h"

#include <string>
#include <utility>
#include <vector>

namespace attnc::cli {

/// Returns a number in three digits: "-12.5", "0.00781".
std::string numberText(double number);

/// Draws maps in shades, and what these mean. `shape` says how many heads there are.
std::string scoreText(const std::vector<LikeScores>& groups, const ScoreScale& scale, const BlockMaskShape& shape);

/// Draws a curve. Precondition: two points or more.
std::string curveText(const std::vector<std::pair<double, double>>& curve);

} // namespace attnc::cli
