// Functions that make arrays, reduce them, and ask for shapes.
#include "dsl/builtins/builtins.h"
#include "dsl/objects/arithmetic.h"
#include "dsl/objects/arrays.h"
#include "dsl/objects/indexing.h"
#include "dsl/objects/known_numbers.h"
#include "dsl/objects/lazy.h"
#include "dsl/tracing/tracer.h"

namespace attnc::dsl {

namespace {

/// Returns the array that a reduction runs over; nullopt for a number, which is its own reduction.
std::optional<Object> arrayOf(Tracer& tracer, Object value) {
  value = decay(tracer, value);
  if (value.isArrayLike()) return value;
  scalar(tracer, value, "a reduction");
  return std::nullopt;
}

std::optional<int64_t> axisOf(Tracer& tracer, const Bound& bound) {
  if (bound.has(2) && truth(tracer, bound[2]))
    tracer.fail(diag::badArgument, bound.builtin->name, "`keepdim` to be False", "True");
  if (!bound.has(1)) return std::nullopt;
  Object axis = bound[1];
  // dim=(-1,) also names one axis.
  if (axis.is<Sequence*>() && axis.as<Sequence*>()->items.size() == 1) axis = axis.as<Sequence*>()->items[0];
  if (!axis.is<int64_t>())
    tracer.fail(diag::badArgument, bound.builtin->name, "`dim` to be one known int", tracer.describe(axis));
  return axis.as<int64_t>();
}

template <class Fold> Object reduceWith(Tracer& tracer, const Bound& bound, Fold fold) {
  auto array = arrayOf(tracer, bound[0]);
  auto axis = axisOf(tracer, bound);
  if (!array) return fold(llvm::ArrayRef<Object>(decay(tracer, bound[0])));
  return reduce(tracer, *array, axis, fold);
}

/// Converts bools to integers, so that products count them.
Object counted(Tracer& tracer, Object x) {
  bool isBool = x.is<bool>() || (x.isTraced() && tracer.type(x.as<ir::Value>()) == ir::Type::Bool);
  return isBool ? cast(tracer, x, ir::Type::I32) : x;
}

Object product(Tracer& tracer, const Bound& bound) {
  return reduceWith(tracer, bound, [&](llvm::ArrayRef<Object> items) {
    Object result = counted(tracer, items[0]);
    for (Object item : items.drop_front()) result = binary(tracer, BinaryOp::Mul, result, counted(tracer, item));
    return result;
  });
}

/// math.prod: the product of the items of a list, a tuple or an array.
Object productOfItems(Tracer& tracer, const Bound& bound) {
  Object result = bound.has(1) ? bound[1] : Object(int64_t(1));
  for (Object item : tracer.items(bound[0])) result = binary(tracer, BinaryOp::Mul, result, item);
  return result;
}

/// Returns the sum of an array. As in torch, a number is its own sum.
Object arraySum(Tracer& tracer, const Bound& bound) {
  auto array = arrayOf(tracer, bound[0]);
  auto axis = axisOf(tracer, bound);
  return array ? total(tracer, *array, axis) : counted(tracer, decay(tracer, bound[0]));
}

Object mean(Tracer& tracer, const Bound& bound) {
  int64_t count = 1;
  if (auto array = arrayOf(tracer, bound[0])) {
    std::vector<Object> shape = shapeOf(tracer, *array);
    auto axis = axisOf(tracer, bound);
    size_t along = axis ? wrapKnownIndex(tracer, *axis, shape.size()) : 0;
    for (size_t i = 0; i < shape.size(); ++i) // the sum refuses a named extent
      if ((!axis || i == along) && shape[i].is<int64_t>()) count *= shape[i].as<int64_t>();
  }
  return binary(tracer, BinaryOp::Div, arraySum(tracer, bound), count);
}

/// Returns the square root of a sum of squares. If the sum is 0, the gradient of the norm is 0.
Object rootOf(Tracer& tracer, Object squares) {
  if (squares.isArrayLike())
    return broadcast(tracer, {squares}, [&](llvm::ArrayRef<Object> items) { return rootOf(tracer, items[0]); });
  Object isZero = compare(tracer, CompareOp::Eq, squares, int64_t(0));
  Object root = tracer.call(findBuiltin("sqrt", kTorch), {{squares}, {}});
  return select(tracer, isZero, 0.0, root);
}

/// The Euclidean norm.
Object norm(Tracer& tracer, const Bound& bound) {
  const bool isEuclidean = !bound.has(1) || (bound[1].is<const Str*>() && bound[1].as<const Str*>()->text == "fro") ||
                           (bound[1].isKnownNumber() && toDouble(bound[1]) == 2);
  if (!isEuclidean) tracer.fail(diag::badArgument, "norm", "`p` to be 2", tracer.describe(bound[1]));
  Object squares = binary(tracer, BinaryOp::Mul, bound[0], bound[0]);
  Object total = arraySum(tracer, Bound{bound.builtin, {squares, bound.values[2], bound.values[3]}, {}, {}});
  return rootOf(tracer, total);
}

template <bool isAll> Object anyAll(Tracer& tracer, const Bound& bound) {
  return reduceWith(tracer, bound, [&](llvm::ArrayRef<Object> items) {
    Object result = asBool(tracer, items[0]);
    for (Object item : items.drop_front())
      result = binary(tracer, isAll ? BinaryOp::And : BinaryOp::Or, result, asBool(tracer, item));
    return result;
  });
}

template <bool isMin> Object extreme(Tracer& tracer, const Bound& bound) {
  return reduceWith(tracer, bound, [&](llvm::ArrayRef<Object> items) {
    Object result = items[0];
    for (Object item : items.drop_front()) result = minMax(tracer, isMin, result, item);
    return result;
  });
}

/// torch.max(x), torch.max(x, y). torch.max(x, dim) returns a pair of values and indices in torch, so it is refused.
template <bool isMin> Object extremeOrTwo(Tracer& tracer, const Bound& bound) {
  if (bound.has(2)) tracer.fail(diag::maxWithDim, bound.builtin->name, isMin ? "amin" : "amax");
  if (!bound.has(1))
    return extreme<isMin>(tracer, Bound{bound.builtin, {bound[0], std::nullopt, std::nullopt}, {}, {}});
  Object x = decay(tracer, bound[0]), y = decay(tracer, bound[1]);
  if (x.isArrayLike() && y.isKnownNumber()) tracer.fail(diag::maxWithDim, bound.builtin->name, isMin ? "amin" : "amax");
  if (!x.isArrayLike() && !y.isArrayLike())
    return minMax(tracer, isMin, scalar(tracer, x, bound.builtin->name), scalar(tracer, y, bound.builtin->name));
  return broadcast(tracer, {x, y},
                   [&](llvm::ArrayRef<Object> items) { return minMax(tracer, isMin, items[0], items[1]); });
}

Object dot(Tracer& tracer, const Bound& bound) { return binary(tracer, BinaryOp::MatMul, bound[0], bound[1]); }

// Making arrays -----------------------------------------------------------------------------------------------------

Object convertAll(Tracer& tracer, const Bound& bound, Object value, size_t dtype) {
  if (!bound.has(dtype)) return value;
  ir::Type type = computedType(tracer, dtypeArgument(tracer, bound[dtype]));
  if (!value.isArrayLike()) return cast(tracer, scalar(tracer, value, "tensor"), type);
  return broadcast(tracer, {value}, [&](llvm::ArrayRef<Object> items) { return cast(tracer, items[0], type); });
}

/// Stacks rows of equal shape.
Object stackRows(Tracer& tracer, llvm::ArrayRef<Object> rows) {
  llvm::SmallVector<int64_t, 2> shape{int64_t(rows.size())};
  std::vector<Object> items;
  for (size_t i = 0; i < rows.size(); ++i) {
    Object row = decay(tracer, rows[i]);
    if (!row.isArrayLike()) {
      if (shape.size() != 1) tracer.fail(diag::raggedArray);
      items.push_back(scalar(tracer, row, "tensor"));
      continue;
    }
    const Array& array = *toArray(tracer, row);
    if (i == 0) shape.append(array.shape.begin(), array.shape.end());
    if (llvm::ArrayRef<int64_t>(shape).drop_front() != llvm::ArrayRef<int64_t>(array.shape))
      tracer.fail(diag::raggedArray);
    items.insert(items.end(), array.items.begin(), array.items.end());
    if (items.size() > kMaxItems) tracer.fail(diag::tooManyItems, Count(items.size()), Count(kMaxItems));
  }
  return makeArray(tracer, shape, std::move(items));
}

/// Converts nested lists of numbers to an array. `depth` bounds the recursion.
Object tensorFrom(Tracer& tracer, Object data, unsigned depth) {
  if (depth > unsigned(TensorView::kMaxRank)) tracer.fail(diag::raggedArray);
  if (!data.is<Sequence*>()) return data;
  std::vector<Object> rows;
  for (Object item : data.as<Sequence*>()->items) rows.push_back(tensorFrom(tracer, item, depth + 1));
  return stackRows(tracer, rows);
}

/// torch.tensor(data, dtype=None): a number stays a number; a list becomes a table.
Object tensor(Tracer& tracer, const Bound& bound) {
  Object data = tensorFrom(tracer, bound[0], 0);
  if (!data.isArrayLike()) data = scalar(tracer, data, "tensor");
  return convertAll(tracer, bound, data, 1);
}

Object stack(Tracer& tracer, const Bound& bound) {
  bool isFirst = !bound.has(1) || (bound[1].is<int64_t>() && bound[1].as<int64_t>() == 0);
  if (!isFirst) tracer.fail(diag::badArgument, "stack", "`dim` to be 0", tracer.describe(bound[1]));
  std::vector<Object> rows = tracer.items(bound[0]);
  return stackRows(tracer, rows);
}

/// torch.arange([start,] stop[, step]) of ints. A short range of known ints is a table; any other is lazy.
Object arange(Tracer& tracer, const Bound& bound) {
  Object parts[3] = {int64_t(0), int64_t(0), int64_t(1)};
  bool isKnown = true;
  for (size_t i = 0; i < 3; ++i) {
    if (!bound.has(i)) continue;
    Object part = decay(tracer, bound[i]);
    isKnown &= part.is<int64_t>();
    const bool isInt = part.is<int64_t>() || (part.isTraced() && tracer.type(part.as<ir::Value>()) == ir::Type::I32);
    if (!isInt || (i == 2 && !part.is<int64_t>()))
      tracer.fail(diag::badArgument, "arange", "ints, the step known before launch", tracer.describe(part));
    parts[i] = part;
  }
  auto [start, stop, by] = parts;
  if (!bound.has(1)) std::swap(start, stop);
  const int64_t step = by.as<int64_t>();
  if (step == 0) tracer.fail(diag::badSliceStep);
  RangeObject range;
  if (isKnown) range = {start.as<int64_t>(), stop.as<int64_t>(), step};
  if (isKnown && range.size() <= kMaxItems) {
    std::vector<Object> items;
    for (uint64_t i = 0; i < range.size(); ++i) items.emplace_back(range.start + int64_t(i) * range.step);
    return convertAll(tracer, bound, makeArray(tracer, {int64_t(range.size())}, std::move(items)), 3);
  }
  if (isKnown && range.size() > uint64_t(ir::kMaxRounds))
    tracer.fail(diag::tooManyItems, Count(std::min<uint64_t>(range.size(), INT64_MAX)), Count(ir::kMaxRounds));
  Object count = int64_t(range.size());
  if (!isKnown) {
    // (stop - start) / step, rounded up
    Object length = binary(tracer, BinaryOp::Sub, stop, start);
    count = binary(tracer, BinaryOp::FloorDiv, length, -step);
    count = unary(tracer, UnaryOp::Neg, count);
  }
  const int64_t extent = extentCode(count);
  Object element = tracer.module.iter(axisLoop(0, extent));
  if (step != 1) element = binary(tracer, BinaryOp::Mul, element, step);
  if (!(start.is<int64_t>() && start.as<int64_t>() == 0)) element = binary(tracer, BinaryOp::Add, element, start);
  return convertAll(tracer, bound, makeLazy(tracer, {extent}, element), 3);
}

/// Counts the boundaries (in ascending order) below a number; with `right`, also those equal to it.
Object passed(Tracer& tracer, Object x, Object boundaries, bool right) {
  auto count = [&](Object value) {
    Object isPassed = compare(tracer, right ? CompareOp::Le : CompareOp::Lt, boundaries, value);
    return total(tracer, isPassed, std::nullopt);
  };
  x = decay(tracer, x);
  boundaries = decay(tracer, boundaries);
  if (boundaries.is<Sequence*>()) boundaries = tensorFrom(tracer, boundaries, 0);
  if (!boundaries.isArrayLike() || shapeOf(tracer, boundaries).size() != 1)
    tracer.fail(diag::badArgument, "bucketize", "boundaries of one dim", tracer.describe(boundaries));
  if (!x.isArrayLike()) return count(scalar(tracer, x, "bucketize"));
  return broadcast(tracer, {x}, [&](llvm::ArrayRef<Object> items) { return count(items[0]); });
}

bool isRight(Tracer& tracer, const Bound& bound, size_t i) { return bound.has(i) && truth(tracer, bound[i]); }

Object bucketize(Tracer& tracer, const Bound& bound) {
  return passed(tracer, bound[0], bound[1], isRight(tracer, bound, 2));
}

Object searchSorted(Tracer& tracer, const Bound& bound) {
  const bool isSideRight = bound.has(3) && bound[3].is<const Str*>() && bound[3].as<const Str*>()->text == "right";
  return passed(tracer, bound[1], bound[0], isRight(tracer, bound, 2) || isSideRight);
}

/// Tests whether a number is one of the elements.
Object isIn(Tracer& tracer, const Bound& bound) {
  Object elements = decay(tracer, bound[1]);
  if (elements.is<Sequence*>()) elements = tensorFrom(tracer, elements, 0);
  auto any = [&](Object x) {
    Object equal = compare(tracer, CompareOp::Eq, elements, x);
    if (!equal.isArrayLike()) return equal;
    return compare(tracer, CompareOp::Gt, total(tracer, equal, std::nullopt), int64_t(0));
  };
  Object x = decay(tracer, bound[0]);
  if (!x.isArrayLike()) return any(scalar(tracer, x, "isin"));
  return broadcast(tracer, {x}, [&](llvm::ArrayRef<Object> items) { return any(items[0]); });
}

// Shapes ------------------------------------------------------------------------------------------------------------

std::vector<Object> shapeOfAny(Tracer& tracer, Object value) {
  return value.isArrayLike() ? shapeOf(tracer, value) : std::vector<Object>{};
}

/// x.size(), x.size(dim)
Object size(Tracer& tracer, const Bound& bound) {
  std::vector<Object> shape = shapeOfAny(tracer, bound[0]);
  if (!bound.has(1)) return tracer.makeSequence(false, std::move(shape));
  if (!bound[1].is<int64_t>()) tracer.fail(diag::badIndex, tracer.describe(bound[1]));
  return shape[wrapKnownIndex(tracer, bound[1].as<int64_t>(), shape.size())];
}

Object numel(Tracer& tracer, const Bound& bound) {
  Object count = int64_t(1);
  for (Object extent : shapeOfAny(tracer, bound[0])) count = binary(tracer, BinaryOp::Mul, count, extent);
  return count;
}

Object dim(Tracer& tracer, const Bound& bound) { return int64_t(shapeOfAny(tracer, bound[0]).size()); }

/// x.transpose(a, b) of a captured tensor.
Object transpose(Tracer& tracer, const Bound& bound) {
  if (!bound[0].is<const Tensor*>())
    tracer.fail(diag::badArgument, bound.builtin->name, "a captured tensor", tracer.describe(bound[0]));
  Tensor view = *bound[0].as<const Tensor*>();
  int64_t axes[2] = {0, 1};
  for (size_t i = 1; i <= 2; ++i) {
    if (!bound.has(i)) continue;
    if (!bound[i].is<int64_t>()) tracer.fail(diag::badIndex, tracer.describe(bound[i]));
    axes[i - 1] = bound[i].as<int64_t>();
  }
  size_t a = wrapKnownIndex(tracer, axes[0], view.order.size()), b = wrapKnownIndex(tracer, axes[1], view.order.size());
  std::swap(view.order[a], view.order[b]);
  return static_cast<const Tensor*>(tracer.heap.make<Tensor>(std::move(view)));
}

} // namespace

llvm::ArrayRef<Builtin> arrayBuiltins() {
  constexpr unsigned kTensor = kTorch | kMethod;
  static const Builtin rows[] = {
      {"sum", kTensor, "input, dim=, keepdim=", arraySum},
      {"prod", kTensor, "input, dim=, keepdim=", product},
      {"prod", kMath, "iterable, start=", productOfItems},
      {"mean", kTensor, "input, dim=, keepdim=", mean},
      {"norm", kTensor, "input, p=, dim=, keepdim=", norm},
      {"any", kTensor, "input, dim=, keepdim=", anyAll<false>},
      {"all", kTensor, "input, dim=, keepdim=", anyAll<true>},
      {"amax", kTensor, "input, dim=, keepdim=", extreme<false>},
      {"amin", kTensor, "input, dim=, keepdim=", extreme<true>},
      {"max", kTensor, "input, other=, dim=", extremeOrTwo<false>},
      {"min", kTensor, "input, other=, dim=", extremeOrTwo<true>},
      {"dot", kTensor, "input, other", dot},
      {"tensor", kTorch, "data, dtype=, device=", tensor},
      {"as_tensor", kTorch, "data, dtype=, device=", tensor},
      {"scalar_tensor", kTorch, "data, dtype=, device=", tensor},
      {"stack", kTorch, "tensors, dim=", stack},
      {"arange", kTorch, "start, end=, step=, dtype=, device=", arange},
      {"bucketize", kTorch, "input, boundaries, right=", bucketize},
      {"searchsorted", kTorch, "sorted_sequence, input, right=, side=", searchSorted},
      {"isin", kTorch, "elements, test_elements", isIn},
      {"size", kMethod, "input, dim=", size},
      {"numel", kTensor, "input", numel},
      {"dim", kMethod, "input", dim},
      {"transpose", kTensor, "input, dim0=, dim1=", transpose},
      {"t", kTensor, "input, dim0=, dim1=", transpose},
  };
  return rows;
}

} // namespace attnc::dsl
