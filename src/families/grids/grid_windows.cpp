#include "families/grids/grid_windows.h"

#include "support/ceil_div.h"

#include <algorithm>

namespace attnc::plan {

/// The assumed length of a window of unknown length.
static constexpr int64_t kLongWindow = 64;

static int64_t known(const ir::Grid::Number& extent) {
  return extent.kind == ir::Grid::Number::Kind::Constant ? extent.value : 0;
}

Windows::Windows(const passes::GridKernel& grid) : axes(int(grid.axes.size())) {
  for (int i = 0; i < axes; ++i) {
    const size_t axis = size_t(3 - axes + i);
    queries[axis] = known(grid.ofQueries.extents[size_t(i)]);
    keys[axis] = known(grid.ofKeys.extents[size_t(i)]);
    span[axis] = std::min(grid.axes[size_t(i)].span.value_or(kLongWindow), keys[axis] ? keys[axis] : ir::kMaxExtent);
    stride[axis] = grid.axes[size_t(i)].stride;
  }
}

int64_t Windows::seenBy(size_t axis, int64_t count) const {
  const int64_t moves = stride[axis] % count == 0 ? 0 : ceilDiv(count, stride[axis]) * stride[axis];
  return span[axis] + (moves ? moves - stride[axis] : 0);
}

int64_t Windows::seeing(size_t axis, int64_t count) const {
  const int64_t all = ceilDiv(span[axis] + count - 1, stride[axis]) * stride[axis];
  return queries[axis] ? std::min(all, queries[axis]) : all;
}

} // namespace attnc::plan
