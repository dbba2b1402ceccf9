// Lists of a block mask by column, in addition to those by row.
#pragma once

#include "attnc/block_mask.h"
#include "attnc/error.h"

namespace attnc {

/// Checks that `lists.columns` name the same blocks as `expected`, which ascend and lie in host memory. Errors
/// (environment) say where they differ. Precondition: checkColumns() of launch/mask_shape.h.
Status checkSameBlocks(const BlockMaskView& lists, const BlockMaskColumns& expected);

} // namespace attnc
