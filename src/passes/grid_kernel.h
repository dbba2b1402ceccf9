// What kernels that walk boxes of a grid are written from: a module that keeps coordinates, and the box of each query.
#pragma once

#include "attnc/error.h"
#include "ir/ir.h"
#include "passes/beside_grid.h"

#include <optional>

namespace attnc::passes {

/// How the box of keys that a query sees is known to lie along an axis: for models of a kernel's time alone.
struct BoxAxis {
  std::optional<int64_t> span; ///< it is no longer than this; unset: not known
  /// Queries whose coordinates have one quotient by it are taken to see the same; if not GridKernel::isBounded, keys to
  /// be seen by the same, too.
  int64_t stride = 1;
};

struct GridKernel {
  ir::Module module;     ///< coordinates of q_idx and kv_idx on their grids are values of their own; box outputs
  ir::Grid ofQueries;    ///< the grid of q_idx
  ir::Grid ofKeys;       ///< that of kv_idx, of as many axes
  llvm::SmallVector<BoxAxis, 3> axes;
  /// Along each axis the box depends on the coordinate of the query along that axis alone, beside b and h: the queries that see
  /// some of a box of keys lie in a box, too.
  bool isSeparable = false;
  bool boxIsMask = false; ///< a query sees the keys of its box, and no others
  /// What a query sees lies in a box that leaves out keys along some axis. Else the box is all keys, and kernels gain
  /// from lists of boxes that live alone.
  bool isBounded = true;
  bool isFound = false; ///< the mod declares no grids: lengths that the found ones do not divide are as good
  std::optional<BesideGrid> beside; ///< unset: all tokens of a launch have to lie on the grids
};

/// `traced`: a module before the passes. Nothing where a kernel by boxes has nothing to gain or would have more to ask:
/// where masks ask for no coordinates of queries; and, without a box that bounds keys, for no two coordinates of keys,
/// or where tokens may lie beside the grids then. Else tokens may lie beside the grids of a mod that says so: that has
/// some before one, or asks which are on it. Whether those of a launch lie as they may is for the launch to see:
/// plan/grid_plan.h.
Expected<std::optional<GridKernel>> gridKernel(const ir::Module& traced);

/// Its module with d_score (passes/autodiff.h), for kernels that compute gradients.
Expected<ir::Module> withGradient(const GridKernel& kernel);

} // namespace attnc::passes
