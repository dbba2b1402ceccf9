#include "ir/bindings.h"

#include <algorithm>

namespace attnc::ir {

int64_t Bindings::of(const Grid::Number& number) const {
  switch (number.kind) {
  case Grid::Number::Kind::Constant:
  case Grid::Number::Kind::Rest: break;
  case Grid::Number::Kind::Scalar: return scalars[size_t(number.value)].integer;
  case Grid::Number::Kind::Dim: return dims[size_t(number.value)];
  }
  return number.value;
}

llvm::SmallVector<int64_t, 3> Bindings::extentsOf(const Grid& grid) const {
  llvm::SmallVector<int64_t, 3> extents;
  for (const Grid::Number& number : grid.extents) extents.push_back(of(number));
  if (!grid.hasRest()) return extents;
  extents[0] = std::max<int64_t>(dims[size_t(grid.extents[0].value)] - of(grid.before), 0);
  for (int64_t extent : llvm::ArrayRef<int64_t>(extents).drop_front())
    extents[0] = extent < 1 ? 0 : extents[0] / extent;
  return extents;
}

std::optional<int64_t> Bindings::farScalar() const {
  for (const ScalarValue& scalar : scalars)
    if (scalar.integer < -kMaxExtent || scalar.integer > kMaxExtent) return scalar.integer;
  return std::nullopt;
}

} // namespace attnc::ir
