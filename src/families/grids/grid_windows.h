// What models of a kernel's time know about a mod's windows on a grid, axis by axis, the slowest of three first.
#pragma once

#include "passes/grids/grid_kernel.h"

#include <array>

namespace attnc::plan {

struct Windows {
  std::array<int64_t, 3> span = {1, 1, 1};                      ///< the extent of the keys that a query sees
  std::array<int64_t, 3> stride = {1, 1, 1};                    ///< how many queries in a row see the same keys
  std::array<int64_t, 3> queries = {1, 1, 1}, keys = {1, 1, 1}; ///< extents of the grids; 0: unknown
  int axes;

  explicit Windows(const passes::GridKernel& grid);

  /// Returns how many keys `count` queries see, if the first one's coordinate is a multiple of `count`.
  int64_t seenBy(size_t axis, int64_t count) const;
  /// Returns how many queries see some of `count` keys in a row, at most all of the axis.
  int64_t seeing(size_t axis, int64_t count) const;
};

} // namespace attnc::plan
