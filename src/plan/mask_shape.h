// Which shapes a block mask may have; shared by all that make one.
#pragma once

#include "attnc/block_mask.h"
#include "attnc/error.h"
#include "ir/ir.h"

namespace attnc {

/// Block sizes 64, 128 or 256, batch and heads at least 1, lengths and batch times heads within int32.
Status checkShape(const BlockMaskShape& shape);

/// The same, and that the mask serves the problem: its lengths, and its batch and heads or 1. A 1 is refused where
/// mask_mod tells batches or heads apart: one mask would be wrong for all but the first.
Status checkMaskProblem(const ir::Module& module, const ProblemShape& problem, const BlockMaskShape& shape);

/// The smallest mask that serves the problem: batch or heads are 1 where mask_mod does not depend on them.
BlockMaskShape smallestMask(const ir::Module& module, const ProblemShape& problem, int qBlock, int kvBlock);

} // namespace attnc
