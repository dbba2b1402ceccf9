// What of a problem is counted for a kernel.
#pragma once

#include "attnc/explain.h"
#include "ir/ir.h"

namespace attnc::plan {
struct Plan;
} // namespace attnc::plan

namespace attnc {

/// Checks that blocks of a mask are blocks of tokens of the problem. `what`: "a map", for messages.
Status checkBlocks(const BlockMaskShape& shape, const ProblemShape& problem, const char* what);

/// Returns the module whose mask is counted. If queries stand at the last keys, its rows are their positions.
Expected<ir::Module> countedModule(const Mod& mod, const KernelOptions& kernel);

/// Counts what a box kernel of a grid visits; nullopt for other kernels. `mod` has its pins folded in; captures lie in
/// host memory.
Expected<std::optional<GridCensus>> countedOnGrid(const Mod& mod, const plan::Plan& plan, const Captures& captures,
                                                  const ProblemShape& problem);

} // namespace attnc
