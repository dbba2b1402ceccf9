// What a kernel by boxes of a grid has to do for a problem: how many tiles, how many steps, and how much of these
// lives.
#pragma once

#include "codegen/config_source.h"
#include "ir/bindings.h"
#include "ir/ir.h"
#include "plan/launch_operands.h"

#include <optional>

namespace attnc {

/// Counts over all batch entries and heads. Where the boxes of keys differ by (batch, head) and there are many of
/// these, some speak for the others.
struct GridCensus {
  bool ownsKeys = false;                   ///< CTAs own boxes of keys, and step along queries (backward); else the other way round
  std::array<int, 3> queryBox{}, keyBox{}; ///< one of a CTA, the other of a step
  double tiles = 0;                        ///< boxes that CTAs own, and as many tokens beside their grid
  double steps = 0;                        ///< boxes that these read, and as many tokens beside theirs
  double visited = 0;                      ///< pairs of a query and a key in steps that the warp or warpgroup of the query computes
  double live = 0; ///< of these, pairs in the box of keys that the query sees; beside a grid, pairs
                   ///< that mask_mod may let live
  /// Of steps that lists have: those that need no mask. Then `live` counts pairs that live.
  std::optional<double> full = {};
  bool isEstimate = false;
  bool mayLieBeside = false; ///< tokens beside the grids are counted, too
};

/// `module`: a verified one with the outputs of the pass derive-grid-box, as passes::GridKernel has it; `bindings` are
/// for it, with captures in host memory; `config`: of a stage with boxes. Tokens lie as plan::checkGrids() asks.
GridCensus takeGridCensus(const ir::Module& module, const ir::Bindings& bindings, const codegen::Config& config,
                          const plan::LaunchOperands::Grids& grids, const ProblemShape& problem);

/// The same of a kernel that goes by lists of boxes, in bounded time: where there are many pairs, some boxes of queries
/// speak for the others.
GridCensus takeBoxMaskCensus(const ir::Module& module, const ir::Bindings& bindings, const codegen::Config& config,
                             const plan::LaunchOperands::Grids& grids, const ProblemShape& problem);

} // namespace attnc
