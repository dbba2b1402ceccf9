// A kernel as a whole: kernel launches in order, and the memory between them.
//
// A plan is complete when it is made. It is written (assemble.h), compiled and launched without changes.
#pragma once

#include "attnc/kernel.h"
#include "passes/derive.h"
#include "plan/stage.h"

#include <string>
#include <vector>

namespace attnc::plan {

/// Most tiles over all heads and batch entries: kernels count in 32 bits, some a few beyond the last tile.
constexpr int64_t kMostTiles = (int64_t(1) << 31) - (1 << 20);

struct Plan {
  KernelOptions options; ///< as requested, with family, headDimV and other defaults filled in
  std::vector<Stage> stages;
  std::vector<WorkspaceUse> workspace;            ///< device memory that the stages share
  std::vector<CaptureAccess> captures;            ///< the captures whose gradients it computes
  std::shared_ptr<const passes::GridKernel> grid; ///< for box kernels
  bool readsBindings = false;                     ///< whether stages ask for LaunchOperands::bindings
  bool bindsLse = false;                          ///< whether stages of a second walk read lse: see bindLse()
  bool widensOperands = false;                    ///< whether stages ask for LaunchOperands::wide
  size_t stagesOfFirstForm = 0; ///< stages in front that some launches run, the others run those behind; 0: all run all
  std::string lowRank; ///< where a low-rank term of the score is computed (LowRankColumns::words); empty without one
  std::string tile;    ///< spelled as in KernelOptions::tile. Empty if the kernel has none
};

/// Checks that no stage has more than kMostTiles tiles. Errors are Blame::Environment.
Status checkTileCounts(const Plan& plan, const LaunchOperands& operands);

/// Whether a stage sums gradients along diagonals. The gradients of all captures are then computed from these sums.
bool sumsDiagonals(const Plan& plan);

/// Returns the stage that computes scores. In a backward plan, that is the one that makes dK and dV. With
/// two walks, that of the second.
const Stage& walkingStage(const Plan& plan);

} // namespace attnc::plan
