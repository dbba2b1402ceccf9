// The module that box kernels are written from: it keeps coordinates, and has the box of keys that each query sees.
#pragma once

#include "attnc/error.h"
#include "ir/ir.h"
#include "passes/grids/beside_grid.h"
#include "passes/grids/steps_apart.h"

#include <optional>

namespace attnc::passes {

/// What is known about the box of keys along one axis. Only cost models of kernels read it.
struct BoxAxis {
  std::optional<int64_t> span; ///< upper bound of the box's length; unset: not known
  /// Queries with equal coordinate // stride are assumed to see the same keys. If not GridKernel::isBounded, keys with
  /// equal coordinate // stride are also assumed to be seen by the same queries.
  int64_t stride = 1;
};

struct GridKernel {
  /// The mod with coordinates of q_idx and kv_idx on their grids as values, and box outputs. Its captures and extents
  /// have the numbers of the mod's other kernels, so launches bind one set.
  ir::Module module;
  ir::Grid ofQueries; ///< the grid of q_idx
  ir::Grid ofKeys;    ///< the grid of kv_idx, with as many axes as ofQueries
  llvm::SmallVector<BoxAxis, 3> axes;
  /// Whether the box along each axis depends only on b, h and the query's coordinate along that axis. Then the queries
  /// that see some key of a box of keys also lie in a box.
  bool isSeparable = false;
  bool boxIsMask = false; ///< whether a query sees exactly the keys of its box
  /// Whether the box excludes keys along some axis. Otherwise it contains all keys, and kernels gain from lists of live
  /// boxes.
  bool isBounded = true;
  bool isFound = false; ///< grids come from find-grids: lengths that these do not divide are also valid
  int64_t step = 1; ///< of a line: a query and its keys are a multiple of it apart, and remainders are the last axis
  std::optional<BesideGrid> beside; ///< unset: all tokens of a launch must lie on the grids
};

/// Returns the box kernel of a mod. `traced`: its module before the passes. `like`: the same behind them. Returns
/// nullopt if box kernels would not help or cannot be used:
/// * the mask reads no query coordinate; or
/// * no box bounds the keys, and the mask reads fewer than two key coordinates or allows off-grid tokens.
/// Off-grid tokens are allowed if the mod provides for them: a grid has tokens before it, or the mod tests which tokens
/// are on the grid. families/grids/grid_plan.h checks whether the tokens of a launch lie where they may.
Expected<std::optional<GridKernel>> gridKernel(const ir::Module& traced, const ir::Module& like);

/// Returns the module of a mod on no grid, or on a line, whose keys are a multiple of a step away from their query. A
/// declared line is a multiple of the step. Nullopt for others.
Expected<std::optional<StepsApart>> onLine(const ir::Module& traced);

/// Returns the kernel's module with d_score (passes/autodiff.h), for backward kernels.
Expected<ir::Module> withGradient(const GridKernel& kernel);

} // namespace attnc::passes
