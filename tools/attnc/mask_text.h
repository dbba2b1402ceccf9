// The map of a mask for a terminal, and the lines that go with it.
#pragma once

#include "attnc/block_mask.h"
#include "attnc/problem.h"
#include "mask_map.h"

#include <string>
#include <vector>

namespace attnc::cli {

/// How many cells of two characters fit into a terminal (stdout's, $COLUMNS, or 80 columns).
CellLimits terminalCells();

/// Pictures of the groups, with axes and, where there are several, a heading each; then what the cells mean.
std::string mapText(const std::vector<LikeHeads>& groups, const BlockMaskShape& shape);

/// Lines of the full, the partial and the empty blocks of all heads, with the share of each.
std::string sharesText(const BlockMask& mask);

/// "the same in all batch entries and heads", of a problem with this mask; "" where there is one of each.
std::string scopeText(const BlockMaskShape& shape, const ProblemShape& problem);

/// "heads 0-3, 6 of all batch entries", of the mask's heads.
std::string headsText(const LikeHeads& group, const BlockMaskShape& shape);

} // namespace attnc::cli
