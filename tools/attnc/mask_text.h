// The map of a mask for a terminal, and the lines that go with it.
#pragma once

#include "attnc/block_mask.h"
#include "attnc/problem.h"
#include "mask_map.h"

#include <string>
#include <vector>

namespace attnc::cli {

/// Returns how many cells of two characters fit into a terminal (stdout's, $COLUMNS, or 80 columns).
CellLimits terminalCells();

/// Draws the groups with axes and, if there are several, a heading each; then the legend.
std::string mapText(const std::vector<LikeHeads>& groups, const BlockMaskShape& shape);

/// Returns lines for the full, partial and empty blocks of all heads, with the share of each.
std::string sharesText(const BlockMask& mask);

/// Returns "the same in all batch entries and heads" for a problem with this mask; "" if each head has its own mask.
std::string scopeText(const BlockMaskShape& shape, const ProblemShape& problem);

/// Returns "heads 0-3, 6 of all batch entries", in heads of the mask.
std::string headsText(const LikeHeads& group, const BlockMaskShape& shape);

} // namespace attnc::cli
