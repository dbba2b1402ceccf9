// The map of a mask as a picture: axes, panels, legend.
#pragma once

#include "show/mask_map.h"
#include "show/panel.h"
#include "show/picture.h"

#include "attnc/block_mask.h"

#include <string>
#include <vector>

namespace attnc::cli {

/// Returns the number of cells that a panel has room for.
CellLimits pictureCells();

/// Draws the mask. `headings` are the lines above the panels. Groups have maps if they are drawn. `counts` are of the
/// blocks that are shown.
Picture maskPicture(const BlockMaskShape& shape, const std::vector<LikeHeads>& groups, const BlockCounts& counts,
                    const std::vector<std::string>& headings);

} // namespace attnc::cli
