#include "ir/import.h"

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

#include <algorithm>
#include <functional>

namespace attnc::ir {
namespace {

/// Returns the index of the first element that is the same, which may be `one`, added.
template <class T, class Same> int64_t indexOf(std::vector<T>& all, const T& one, Same isSame) {
  for (size_t i = 0; i < all.size(); ++i)
    if (isSame(all[i], one)) return int64_t(i);
  all.push_back(one);
  return int64_t(all.size()) - 1;
}

template <class Capture> bool isSameName(const Capture& a, const Capture& b) { return a.name == b.name; }

bool isSame(const TensorCapture& a, const TensorCapture& b) {
  const auto isSameExtent = [](const Extent& x, const Extent& y) {
    return x.isNamed == y.isNamed && x.value == y.value;
  };
  return a.dtype == b.dtype && std::equal(a.shape.begin(), a.shape.end(), b.shape.begin(), b.shape.end(), isSameExtent);
}

} // namespace

Expected<Import> Import::into(Module& to, const Module& from) {
  Import import(to, from);
  const auto clash = [](const std::string& name) {
    return Error::environment(fmt::format("the capture `{}` has two declarations that differ", name));
  };
  const auto isNamed = [](const auto& all, const std::string& name) {
    return llvm::any_of(all, [&](const auto& known) { return known.name == name; });
  };
  for (const std::string& dim : from.dims) import.dims.push_back(indexOf(to.dims, dim, std::equal_to<>()));
  for (TensorCapture tensor : from.tensors) {
    for (Extent& extent : tensor.shape)
      if (extent.isNamed) extent.value = import.dims[size_t(extent.value)];
    const int64_t at = indexOf(to.tensors, tensor, isSameName<TensorCapture>);
    TensorCapture& known = to.tensors[size_t(at)];
    if (!isSame(known, tensor) || isNamed(to.scalars, tensor.name)) return clash(tensor.name);
    known.addChoices(tensor.choices);
    import.tensors.push_back(at);
  }
  for (const ScalarCapture& scalar : from.scalars) {
    const int64_t at = indexOf(to.scalars, scalar, isSameName<ScalarCapture>);
    if (to.scalars[size_t(at)].type != scalar.type || isNamed(to.tensors, scalar.name)) return clash(scalar.name);
    import.scalars.push_back(at);
  }
  using Kind = Grid::Number::Kind;
  const auto move = [&](Grid::Number& number) {
    if (number.kind == Kind::Scalar) number.value = import.scalars[size_t(number.value)];
    if (number.kind == Kind::Dim || number.kind == Kind::Rest) number.value = import.dims[size_t(number.value)];
  };
  for (Grid grid : from.grids) {
    for (Grid::Number& extent : grid.extents) move(extent);
    move(grid.before);
    import.grids.push_back(indexOf(to.grids, grid, std::equal_to<>()));
  }
  return import;
}

Value Import::copy(Value root, ParamKind replaced, std::optional<Value> by) {
  std::vector<bool> needed(root.id + 1);
  needed[root.id] = true;
  for (uint32_t id = root.id + 1; id-- > 0;)
    if (needed[id])
      for (Value operand : from[{id}].operands) needed[operand.id] = true;
  std::vector<Value> copies(root.id + 1);
  for (uint32_t id = 0; id <= root.id; ++id) {
    if (!needed[id]) continue;
    const Node& node = from[{id}];
    if (by && from.isParam({id}, replaced)) {
      copies[id] = *by;
      continue;
    }
    int64_t attr = node.attr;
    switch (node.op) {
    case Op::Dim: attr = dims[size_t(attr)]; break;
    case Op::Scalar: attr = scalars[size_t(attr)]; break;
    case Op::Load: attr = tensors[size_t(attr)]; break;
    case Op::Coord:
    case Op::InGrid: {
      GridAxis axis = GridAxis::of(node);
      axis.grid = unsigned(grids[axis.grid]);
      attr = axis.attr();
      break;
    }
    default: break;
    }
    llvm::SmallVector<Value, 3> operands;
    for (Value operand : node.operands) operands.push_back(copies[operand.id]);
    copies[id] = to.make(node.op, node.type, operands, attr, node.line);
  }
  return copies[root.id];
}

} // namespace attnc::ir
