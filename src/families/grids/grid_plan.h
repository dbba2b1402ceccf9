// Boxes of kernels that walk grids: their shapes and their number.
#pragma once

#include "passes/grids/grid_kernel.h"
#include "plan/plan.h"

#include <array>
#include <functional>
#include <string>
#include <vector>

namespace attnc::plan {

/// A kernel as seen by the model of its time. The defaults are Hopper's: bench/notes/grids.md.
struct BoxModel {
  int consumers = 1;                  ///< per CTA
  std::vector<int> queries = {64};    ///< per consumer: one of these powers of two
  int leastKeys = 64, mostKeys = 128; ///< per box
  int together = 64;                  ///< Config::Boxes::together, a power of two
  double flopsPerCycle = 4096 * 0.75; ///< of a multiprocessor, in products
  double cyclesOfStep = 120;          ///< per group of queries that go together, besides the products
  double bytesPerCycle = 30;          ///< of a multiprocessor, from L2
  int elementBytes = 2;
  bool byLists = false; ///< lists say which boxes of a lattice are read, and every query of a CTA takes all of them
  std::function<double(const codegen::Config::Boxes&)>
      burden; ///< a factor of the time; 0 for boxes that do not fit. Default: 1
};

/// Returns at most `count` box shapes, the fastest first by a model of the kernel's time. The model counts what is
/// computed, what is read from L2, and how much of both falls outside the mod's windows.
std::vector<codegen::Config::Boxes> rankBoxes(const passes::GridKernel& grid, int headDim, int headDimV,
                                              const BoxModel& model, size_t count);

constexpr int tokensOf(const std::array<int, 3>& box) { return box[0] * box[1] * box[2]; }

/// Spells boxes: "q1x8x8 kv1x20x4 split1"; "q1x8x8 kv1x20x4" for kernels without consumers side by side.
std::string boxesText(const codegen::Config::Boxes& boxes);

/// Returns the box of queries that pass over boxes of keys together; a consumer's own box is made of these.
std::array<int, 3> togetherOf(const codegen::Config::Boxes& boxes);

/// Returns the extents of a CTA's box of queries.
std::array<int, 3> queryBoxOf(const codegen::Config& config);
/// Return how many boxes of queries the grid of queries takes: along each axis; and in all, including the tiles of
/// off-grid queries. Precondition: operands.grids.
std::array<int64_t, 3> queryBoxesAlong(const Stage& stage, const LaunchOperands& operands);
int64_t queryBoxesOf(const Stage& stage, const LaunchOperands& operands);

/// Return how many of a CTA's boxes of keys the grid of keys takes: along each axis; and in all, including the tiles of
/// off-grid keys.
std::array<int64_t, 3> keyBoxesAlong(const Stage& stage, const LaunchOperands& operands);
int64_t keyBoxesOf(const Stage& stage, const LaunchOperands& operands);
/// CountCtas and CountTiles of kernels by boxes: one per CTA's box of queries of each (batch, head); of keys of each
/// (kv batch, kv head). The tiles are 0 if the extents are unknown.
int64_t perQueryBox(const Stage& stage, const LaunchOperands& operands, const Device& device);
int64_t perKeyBox(const Stage& stage, const LaunchOperands& operands, const Device& device);
uint64_t queryBoxTiles(const Stage& stage, const LaunchOperands& operands);
uint64_t keyBoxTiles(const Stage& stage, const LaunchOperands& operands);
/// Return the off-grid tokens: those before the grid, and those after it. Precondition: checkGrids() accepted them.
std::array<int64_t, 2> queriesBeside(const LaunchOperands::Grids& grids, const ProblemShape& problem);
std::array<int64_t, 2> keysBeside(const LaunchOperands::Grids& grids, const ProblemShape& problem);

/// Returns the lattices of a kernel that walks lists of boxes, in the form that a block mask stores them.
BlockMaskShape::Boxes latticesOf(const codegen::Config& config, const LaunchOperands::Grids& grids);

/// Checks that the lists, if any are given, have these lattices. Precondition: checkGrids() accepted the operands.
Status checkListedBoxes(const codegen::Config& config, const LaunchOperands& operands);

/// Returns the grid extents of a launch. `bindings`: of the module that the grids' numbers belong to.
LaunchOperands::Grids gridsOf(const passes::GridKernel& grid, const ir::Bindings& bindings);
/// Returns the grid extents of a launch without captures; nullopt if the extents need captures.
std::optional<LaunchOperands::Grids> gridsOf(const passes::GridKernel& grid, const ProblemShape& problem);

/// Checks that all tokens lie on the grids. Off-grid tokens are allowed if `takesBeside` and the mod expects them.
/// Error (environment): they do not, or the extents are unknown.
Status checkGrids(const LaunchOperands& operands, bool takesBeside = false);
/// Implements FamilyRow::checkLayout for families that take every layout of tokens on grids.
Status takesAnyLayoutOnGrids(const LaunchOperands& operands);

} // namespace attnc::plan
