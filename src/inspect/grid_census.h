// The work of a box kernel for a problem: how many tiles, how many steps, and how much of these is live.
#pragma once

#include "attnc/explain.h"
#include "codegen/config_source.h"
#include "ir/bindings.h"
#include "ir/ir.h"
#include "launch/launch_operands.h"

namespace attnc {

/// Takes a census. `module`: a verified one with the outputs of the pass derive-grid-box, as in passes::GridKernel.
/// `bindings`: for the module, with captures in host memory. `config`: of a stage with boxes. Precondition:
/// plan::checkGrids() accepts the tokens.
GridCensus takeGridCensus(const ir::Module& module, const ir::Bindings& bindings, const codegen::Config& config,
                          const plan::LaunchOperands::Grids& grids, const ProblemShape& problem);

/// The same for a kernel that walks lists of boxes, in bounded time: if there are many pairs, a sample of boxes of
/// queries stands for all.
GridCensus takeBoxMaskCensus(const ir::Module& module, const ir::Bindings& bindings, const codegen::Config& config,
                             const plan::LaunchOperands::Grids& grids, const ProblemShape& problem);

} // namespace attnc
