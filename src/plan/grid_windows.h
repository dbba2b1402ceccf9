// What models of a kernel's time know of the windows of a mod on a grid, axis by axis, the slowest of three first.
#pragma once

#include "passes/grid_kernel.h"

#include <array>

namespace attnc::plan {

inline int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Windows {
  std::array<int64_t, 3> span = {1, 1, 1};                      ///< of the keys that a query sees
  std::array<int64_t, 3> stride = {1, 1, 1};                    ///< queries that see the same
  std::array<int64_t, 3> queries = {1, 1, 1}, keys = {1, 1, 1}; ///< extents of the grids; 0: not known
  int axes;

  explicit Windows(const passes::GridKernel& grid);

  /// Keys that queries from a coordinate of a multiple of `count` on see.
  int64_t seenBy(size_t axis, int64_t count) const;
  /// Queries that see some of `count` keys in a row, no more than there are.
  int64_t seeing(size_t axis, int64_t count) const;
};

} // namespace attnc::plan
