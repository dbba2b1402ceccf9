// The map of a mask as a picture: axes, panels, legend.
#pragma once

#include "mask_map.h"
#include "picture.h"

#include "attnc/block_mask.h"

#include <string>
#include <vector>

namespace attnc::cli {

/// Maximum number of groups of heads that have their own panels.
constexpr size_t kMostPanels = 12;

/// Returns the number of cells that a panel has room for.
CellLimits pictureCells();

/// Draws the mask. `headings` are the lines above the panels. Groups have maps if they are drawn.
Picture maskPicture(const BlockMask& mask, const std::vector<LikeHeads>& groups,
                    const std::vector<std::string>& headings);

} // namespace attnc::cli
