// The map of a mask as a picture: axes, panels, legend.
#pragma once

#include "mask_map.h"
#include "picture.h"

#include "attnc/block_mask.h"

#include <string>
#include <vector>

namespace attnc::cli {

/// Up to so many groups of heads have a panel of their own.
constexpr size_t kMostPanels = 12;

/// Cells that a panel has room for.
CellLimits pictureCells();

/// `headings`: lines above the panels. `groups` have maps as far as they are drawn.
Picture maskPicture(const BlockMask& mask, const std::vector<LikeHeads>& groups, const std::vector<std::string>& headings);

} // namespace attnc::cli
