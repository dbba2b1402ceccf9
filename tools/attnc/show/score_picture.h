// What a score_mod makes of scores, as a picture.
#pragma once

#include "show/picture.h"
#include "show/score_map.h"

#include "attnc/block_mask.h"

#include <string>
#include <utility>
#include <vector>

namespace attnc::cli {

/// Returns the number of cells that a panel has room for.
CellLimits scorePictureCells();

/// Draws maps with a scale in numbers, of what `scaleTitle` says. `headings` are the lines above the panels. `shape`
/// says how many heads there are.
Picture scorePicture(const std::vector<LikeScores>& groups, const ScoreScale& scale, const BlockMaskShape& shape,
                     const std::vector<std::string>& headings, const std::string& scaleTitle);

/// Draws a curve over square axes, and where scores stay as they are. Precondition: two points or more.
Picture curvePicture(const std::vector<std::pair<double, double>>& curve, const std::vector<std::string>& headings);

} // namespace attnc::cli
