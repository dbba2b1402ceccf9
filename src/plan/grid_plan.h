// Boxes of kernels that walk grids: which shapes they have, and how many there are.
#pragma once

#include "passes/grid_kernel.h"
#include "plan/plan.h"

#include <array>
#include <functional>
#include <string>
#include <vector>

namespace attnc::plan {

/// A kernel, as the model of its time knows it. The numbers are those of Hopper's: bench/NOTES.md.
struct BoxModel {
  int consumers = 1;                  ///< of a CTA
  std::vector<int> queries = {64};    ///< of a consumer, powers of two: one of these
  int leastKeys = 64, mostKeys = 128; ///< of a box
  int together = 64;                  ///< as Boxes has it, a power of two
  double flopsPerCycle = 4096 * 0.75; ///< of a multiprocessor, in products
  double cyclesOfStep = 120;          ///< of queries that go together, beside products
  double bytesPerCycle = 30;          ///< of a multiprocessor, from L2
  bool byLists = false; ///< lists say which boxes of a lattice are read, and all of a CTA's queries take all of them
  std::function<double(const codegen::Config::Boxes&)>
      burden; ///< a factor of the time; 0: boxes that do not fit. Unset: 1
};

/// The shapes of boxes that a model of the kernel's time finds best, at most `count`, the best first: what is computed,
/// what is read from L2, and how much of both the windows of the mod leave over.
std::vector<codegen::Config::Boxes> rankBoxes(const passes::GridKernel& grid, int headDim, int headDimV,
                                              const BoxModel& model, size_t count);

constexpr int tokensOf(const std::array<int, 3>& box) { return box[0] * box[1] * box[2]; }

/// "q1x8x8 kv1x20x4 split1"; of kernels without consumers side by side "q1x8x8 kv1x20x4".
std::string boxesText(const codegen::Config::Boxes& boxes);

/// The queries of a consumer that pass over boxes of keys together: a box of which its own is made.
std::array<int, 3> togetherOf(const codegen::Config::Boxes& boxes);

/// Extents of a box of queries of a CTA.
std::array<int, 3> queryBoxOf(const codegen::Config& config);
/// How many of them a grid of queries takes along each axis; and in all, with tiles of queries beside it. Precondition:
/// operands.grids.
std::array<int64_t, 3> queryBoxesAlong(const Stage& stage, const LaunchOperands& operands);
int64_t queryBoxesOf(const Stage& stage, const LaunchOperands& operands);

/// Boxes of keys of a CTA that the grid of keys takes along each axis; and in all, with tiles of keys beside it.
std::array<int64_t, 3> keyBoxesAlong(const Stage& stage, const LaunchOperands& operands);
int64_t keyBoxesOf(const Stage& stage, const LaunchOperands& operands);
/// Tokens beside the grids: those before it, and those behind. Precondition: checkGrids() accepted them.
std::array<int64_t, 2> queriesBeside(const LaunchOperands::Grids& grids, const ProblemShape& problem);
std::array<int64_t, 2> keysBeside(const LaunchOperands::Grids& grids, const ProblemShape& problem);

/// The lattices of a kernel that goes by lists of boxes, as a mask has them.
BlockMaskShape::Boxes latticesOf(const codegen::Config& config, const LaunchOperands::Grids& grids);

/// Whether given lists, if there are any, are of these lattices. Precondition: checkGrids() accepted the operands.
Status checkListedBoxes(const codegen::Config& config, const LaunchOperands& operands);

/// The extents of a launch. `bindings`: of the module that the numbers of the grids belong to.
LaunchOperands::Grids gridsOf(const passes::GridKernel& grid, const ir::Bindings& bindings);
/// Those of launches without captures; nothing where the extents ask for some.
std::optional<LaunchOperands::Grids> gridsOf(const passes::GridKernel& grid, const ProblemShape& problem);

/// Whether all tokens lie on the grids, or, where `takesBeside` and the mod means such, beside them. Environment: they
/// do not, or nothing is known of it.
Status checkGrids(const LaunchOperands& operands, bool takesBeside = false);
/// Of families that take every layout of such tokens.
Status takesAnyLayoutOnGrids(const LaunchOperands& operands);

} // namespace attnc::plan
