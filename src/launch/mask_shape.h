// Which block masks are valid: the one place where their shapes and lists are checked. All errors are
// Blame::Environment and begin with "block mask".
#pragma once

#include "attnc/block_mask.h"
#include "attnc/error.h"
#include "ir/ir.h"

namespace attnc::plan {

/// Checks sizes of blocks: 64, 128 or 256 each.
Status checkBlocks(int qBlock, int kvBlock);

/// Checks a mask's shape: its blocks are as in checkBlocks(), or boxes within the limits of BoxLattice; batch and heads
/// at least 1; lengths, and batch times heads, within int32; at most 2^59 blocks.
Status checkShape(const BlockMaskShape& shape);

/// checkShape(), and checks that the mask serves the problem: equal lengths, and equal batch and heads or 1. If the
/// problem's batch or heads are 0, the mask's may be 0. `isRagged`: whether the lengths are the longest of sequences.
Status checkServes(const BlockMaskShape& shape, const ProblemShape& problem, bool isRagged = false);

/// checkServes(). Also refuses a 1 if mask_mod distinguishes batches or heads: one mask would be wrong for all but the
/// first.
Status checkMaskProblem(const ir::Module& module, const ProblemShape& problem, const BlockMaskShape& shape);

/// Checks lists that are read: counts and indices are given if there are rows and blocks, and the full pair is given
/// whole or not at all. Precondition: checkShape() accepted the shape.
Status checkLists(const BlockMaskView& lists);

/// checkLists() for the lists by column, which must be given if they could list anything.
Status checkColumns(const BlockMaskView& lists);

/// Returns the smallest mask that serves the problem: batch or heads are 1 if mask_mod does not depend on them.
BlockMaskShape smallestMask(const ir::Module& module, const ProblemShape& problem, int qBlock, int kvBlock);

} // namespace attnc::plan
