// Which shapes a block mask may have; shared by all that make one.
#pragma once

#include "attnc/block_mask.h"
#include "attnc/error.h"

namespace attnc {

/// Block sizes 64, 128 or 256, batch and heads at least 1, lengths and their product within int32 indexing.
Status checkShape(const BlockMaskShape& shape);

} // namespace attnc
