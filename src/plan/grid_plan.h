// Boxes of kernels that walk grids: which shapes they have, and how many there are.
#pragma once

#include "passes/grid_kernel.h"
#include "plan/plan.h"

#include <string>
#include <vector>

namespace attnc::plan {

/// The shapes of boxes that a model of the kernel's time finds best, at most `count`, the best first: what is computed, what
/// is read from L2, and how much of both the windows of the mod leave over. `consumers`: warpgroups of a CTA. `mostKeys`: of a
/// box, at least 64.
std::vector<codegen::Config::Boxes> rankBoxes(const passes::GridKernel& grid, int headDim, int headDimV, int consumers, int mostKeys,
                                              size_t count);

/// "q1x8x8 kv1x20x4 split1"; "q1x4x16 kv1x8x16" without an axis along which consumers lie
std::string boxesText(const codegen::Config::Boxes& boxes);

/// Extents of a box of queries of a CTA.
std::array<int, 3> queryBoxOf(const codegen::Config& config);
/// How many of them a grid of queries takes along each axis; and in all, with tiles of queries beside it. Precondition:
/// operands.grids.
std::array<int64_t, 3> queryBoxesAlong(const Stage& stage, const LaunchOperands& operands);
int64_t queryBoxesOf(const Stage& stage, const LaunchOperands& operands);

/// Boxes of keys of a CTA that the grid of keys takes, likewise.
std::array<int64_t, 3> keyBoxesAlong(const Stage& stage, const LaunchOperands& operands);
int64_t keyBoxesOf(const Stage& stage, const LaunchOperands& operands);
/// Tokens beside the grids: those before it, and those behind. Precondition: checkGrids() accepted them.
std::array<int64_t, 2> queriesBeside(const LaunchOperands::Grids& grids, const ProblemShape& problem);
std::array<int64_t, 2> keysBeside(const LaunchOperands::Grids& grids, const ProblemShape& problem);

/// The extents of a launch. `bindings`: of the module that the numbers of the grids belong to.
LaunchOperands::Grids gridsOf(const passes::GridKernel& grid, const ir::Bindings& bindings);
/// Those of launches without captures; nothing where the extents ask for some.
std::optional<LaunchOperands::Grids> gridsOf(const passes::GridKernel& grid, const ProblemShape& problem);

/// Whether all tokens lie on the grids, or, where `takesBeside` and the mod means such, beside them. Environment: they
/// do not, or nothing is known of it.
Status checkGrids(const LaunchOperands& operands, bool takesBeside = false);

} // namespace attnc::plan
