// Which block mask is built for operands that bring none.
#pragma once

#include "attnc/block_mask.h"
#include "ir/ir.h"
#include "launch/launch_operands.h"

namespace attnc {

/// Returns the shape of the mask to build. If each launch builds it, it is of each sequence.
BlockMaskShape shapeToBuild(const ir::Module& module, const ProblemShape& problem, const KernelOptions& options);

/// Whether lists may be built for sequences as they lie. Only forward kernels walk lists of queries with offsets.
///
/// Offsets differ from launch to launch. So each launch builds lists, of the rows and keys that it finds there. They
/// must not take too much memory, and there must be keys to skip. A CTA builds a row of blocks, so few rows of many
/// blocks might take longer than what they save. Lists that are kept are of the longest sequences of a ragged batch,
/// which the host must know. To find them must not take many more pairs than the sequences have.
bool mayBuildLists(const plan::LaunchOperands& layout, const ir::Module& module, const KernelOptions& options,
                   BlockMask::Lists lists);

} // namespace attnc
