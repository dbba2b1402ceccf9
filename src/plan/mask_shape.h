// Which block masks there may be: the one place where their shapes and lists are checked. All errors are
// Blame::Environment and begin with "block mask".
#pragma once

#include "attnc/block_mask.h"
#include "attnc/error.h"
#include "ir/ir.h"

namespace attnc::plan {

/// Sizes of blocks: 64, 128 or 256 each.
Status checkBlocks(int qBlock, int kvBlock);

/// The same, or boxes within the limits of BoxLattice; batch and heads at least 1, lengths and batch times heads within
/// int32, at most 2^59 blocks.
Status checkShape(const BlockMaskShape& shape);

/// The same, and that the mask serves the problem: its lengths, and its batch and heads or 1. A problem of batch 0 may
/// have a mask of batch 0, likewise for heads.
Status checkServes(const BlockMaskShape& shape, const ProblemShape& problem);

/// The same. A 1 is refused where mask_mod tells batches or heads apart: one mask would be wrong for all but the first.
Status checkMaskProblem(const ir::Module& module, const ProblemShape& problem, const BlockMaskShape& shape);

/// Lists that are read: counts and indices are given where there are rows and blocks, and both of the full pair or
/// none. Precondition: the shape is one that checkShape() takes.
Status checkLists(const BlockMaskView& lists);

/// The same for the lists by column, which must be there if they could list anything.
Status checkColumns(const BlockMaskView& lists);

/// The smallest mask that serves the problem: batch or heads are 1 where mask_mod does not depend on them.
BlockMaskShape smallestMask(const ir::Module& module, const ProblemShape& problem, int qBlock, int kvBlock);

} // namespace attnc::plan
