// The work of a box kernel for a problem: how many tiles, how many steps, and how much of these is live.
#pragma once

#include "codegen/config_source.h"
#include "ir/bindings.h"
#include "ir/ir.h"
#include "plan/launch_operands.h"

#include <optional>

namespace attnc {

/// Counts over all batch entries and heads. If the boxes of keys differ by (batch, head) and there are many of these, a
/// sample stands for all.
struct GridCensus {
  bool ownsKeys = false; ///< whether CTAs own boxes of keys and step along queries (backward); else the other way round
  std::array<int, 3> queryBox{}, keyBox{}; ///< one is a CTA's, the other a step's
  double tiles = 0;                        ///< boxes that CTAs own, and tiles of off-grid tokens of the same size
  double steps = 0;                        ///< boxes that these read, and blocks of off-grid tokens of the same size
  double visited = 0; ///< pairs of query and key in steps that the query's warp or warpgroup computes
  /// Pairs of `visited` whose key is in the query's box; for off-grid tokens, pairs that mask_mod may let live.
  double live = 0;
  /// With lists: steps that need no mask. `live` then counts pairs that are live.
  std::optional<double> full = {};
  bool isEstimate = false;
  bool mayLieBeside = false; ///< whether off-grid tokens are counted as well
};

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
