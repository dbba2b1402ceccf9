// Functions that make arrays, reduce them, and ask for shapes.
#include "dsl/builtins/builtins.h"
#include "dsl/objects/arithmetic.h"
#include "dsl/objects/arrays.h"
#include "dsl/objects/comparison.h"
#include "dsl/objects/indexing.h"
#include "dsl/objects/known_numbers.h"
#include "dsl/objects/lazy.h"
#include "dsl/objects/repairs.h"
#include "dsl/objects/scalar_operators.h"
#include "dsl/objects/scalars.h"
#include "dsl/objects/tables.h"
#include "dsl/objects/tensors.h"

namespace attnc::dsl {

namespace {

/// Returns the array that a reduction runs over; nullopt for a number, which is its own reduction.
std::optional<Object> arrayOf(Context& context, Object value) {
  value = decay(context, value);
  if (value.isArrayLike()) return value;
  scalar(context, value, "a reduction");
  return std::nullopt;
}

std::optional<int64_t> axisOf(Context& context, const Bound& bound) {
  if (bound.has(2) && truth(context, bound[2]))
    context.fail(diag::badArgument, bound.builtin->name, "`keepdim` to be False", "True");
  if (!bound.has(1)) return std::nullopt;
  Object axis = bound[1];
  // dim=(-1,) also names one axis.
  if (axis.is<Sequence*>() && axis.as<Sequence*>()->items.size() == 1) axis = axis.as<Sequence*>()->items[0];
  if (!axis.is<int64_t>())
    context.fail(diag::badArgument, bound.builtin->name, "`dim` to be one known int", context.describe(axis));
  return axis.as<int64_t>();
}

template <class Fold> Object reduceWith(Context& context, const Bound& bound, Fold fold) {
  auto array = arrayOf(context, bound[0]);
  auto axis = axisOf(context, bound);
  if (!array) return fold(llvm::ArrayRef<Object>(decay(context, bound[0])));
  return reduce(context, *array, axis, fold);
}

/// Converts bools and ints to int64, in which torch sums and multiplies them.
Object counted(Context& context, Object x) { return isFloat(context, x) ? x : cast(context, x, NumberType::I64); }

Object product(Context& context, const Bound& bound) {
  return reduceWith(context, bound, [&](llvm::ArrayRef<Object> items) {
    Object result = counted(context, items[0]);
    for (Object item : items.drop_front()) result = binary(context, BinaryOp::Mul, result, counted(context, item));
    return result;
  });
}

/// math.prod: the product of the items of a list, a tuple or an array.
Object productOfItems(Context& context, const Bound& bound) {
  Object result = bound.has(1) ? bound[1] : Object(int64_t(1));
  for (Object item : context.items(bound[0])) result = binary(context, BinaryOp::Mul, result, item);
  return result;
}

/// Returns the sum of an array. As in torch, a number is its own sum.
Object arraySum(Context& context, const Bound& bound) {
  auto array = arrayOf(context, bound[0]);
  auto axis = axisOf(context, bound);
  return array ? total(context, *array, axis) : counted(context, decay(context, bound[0]));
}

Object mean(Context& context, const Bound& bound) {
  int64_t count = 1;
  if (auto array = arrayOf(context, bound[0])) {
    if (holdsInts(context, *array))
      context.fail(diag::badArgument, "mean", "floats, as in torch: `x.float().mean()`", "ints");
    std::vector<Object> shape = shapeOf(context, *array);
    auto axis = axisOf(context, bound);
    size_t along = axis ? wrapKnownIndex(context, *axis, shape.size()) : 0;
    for (size_t i = 0; i < shape.size(); ++i) // the sum refuses a named extent
      if ((!axis || i == along) && shape[i].is<int64_t>()) count *= shape[i].as<int64_t>();
  }
  return binary(context, BinaryOp::Div, arraySum(context, bound), count);
}

/// Returns the square root of a sum of squares. If the sum is 0, the gradient of the norm is 0.
Object rootOf(Context& context, Object squares) {
  if (squares.isArrayLike())
    return broadcast(context, {squares}, [&](llvm::ArrayRef<Object> items) { return rootOf(context, items[0]); });
  Object isZero = compare(context, CompareOp::Eq, squares, int64_t(0));
  Object root = context.call(findBuiltin("sqrt", kTorch), {{squares}, {}});
  return select(context, isZero, 0.0, root);
}

/// The Euclidean norm.
Object norm(Context& context, const Bound& bound) {
  const bool isEuclidean = !bound.has(1) || (bound[1].is<const Str*>() && bound[1].as<const Str*>()->text == "fro") ||
                           (bound[1].isKnownNumber() && toDouble(bound[1]) == 2);
  if (!isEuclidean) context.fail(diag::badArgument, "norm", "`p` to be 2", context.describe(bound[1]));
  Object squares = binary(context, BinaryOp::Mul, bound[0], bound[0]);
  Object total = arraySum(context, Bound{bound.builtin, {squares, bound.values[2], bound.values[3]}, {}, {}});
  return rootOf(context, total);
}

template <bool isAll> Object anyAll(Context& context, const Bound& bound) {
  return reduceWith(context, bound, [&](llvm::ArrayRef<Object> items) {
    Object result = asBool(context, items[0]);
    for (Object item : items.drop_front())
      result = binary(context, isAll ? BinaryOp::And : BinaryOp::Or, result, asBool(context, item));
    return result;
  });
}

template <bool isMin> Object extreme(Context& context, const Bound& bound) {
  return reduceWith(context, bound, [&](llvm::ArrayRef<Object> items) {
    Object result = items[0];
    for (Object item : items.drop_front()) result = minMax(context, isMin, result, item);
    return result;
  });
}

/// torch.max(x), torch.max(x, y). torch.max(x, dim) returns a pair of values and indices in torch, so it is refused.
template <bool isMin> Object extremeOrTwo(Context& context, const Bound& bound) {
  if (bound.has(2)) context.fail(diag::maxWithDim, bound.builtin->name, isMin ? "amin" : "amax");
  if (!bound.has(1))
    return extreme<isMin>(context, Bound{bound.builtin, {bound[0], std::nullopt, std::nullopt}, {}, {}});
  Object x = decay(context, bound[0]), y = decay(context, bound[1]);
  if (x.isArrayLike() && y.isKnownNumber())
    context.fail(diag::maxWithDim, bound.builtin->name, isMin ? "amin" : "amax");
  if (!x.isArrayLike() && !y.isArrayLike())
    return minMax(context, isMin, scalar(context, x, bound.builtin->name), scalar(context, y, bound.builtin->name));
  return broadcast(context, {x, y},
                   [&](llvm::ArrayRef<Object> items) { return minMax(context, isMin, items[0], items[1]); });
}

Object dot(Context& context, const Bound& bound) { return binary(context, BinaryOp::MatMul, bound[0], bound[1]); }

// Making arrays -----------------------------------------------------------------------------------------------------

Object convertAll(Context& context, const Bound& bound, Object value, size_t dtype) {
  if (!bound.has(dtype)) return value;
  const NumberType type = computedType(context, dtypeArgument(context, bound[dtype]));
  if (!value.isArrayLike()) return cast(context, scalar(context, value, "tensor"), type);
  return broadcast(context, {value}, [&](llvm::ArrayRef<Object> items) { return cast(context, items[0], type); });
}

/// Stacks rows of equal shape.
Object stackRows(Context& context, llvm::ArrayRef<Object> rows) {
  llvm::SmallVector<int64_t, 2> shape{int64_t(rows.size())};
  std::vector<Object> items;
  for (size_t i = 0; i < rows.size(); ++i) {
    Object row = decay(context, rows[i]);
    if (!row.isArrayLike()) {
      if (shape.size() != 1) context.fail(diag::raggedArray);
      items.push_back(scalar(context, row, "tensor"));
      continue;
    }
    const Array& array = *toArray(context, row);
    if (i == 0) shape.append(array.shape.begin(), array.shape.end());
    if (llvm::ArrayRef<int64_t>(shape).drop_front() != llvm::ArrayRef<int64_t>(array.shape))
      context.fail(diag::raggedArray);
    items.insert(items.end(), array.items.begin(), array.items.end());
    if (items.size() > kMaxItems) context.fail(diag::tooManyItems, Count(items.size()), Count(kMaxItems));
  }
  return makeArray(context, shape, std::move(items));
}

/// Converts nested lists of numbers to an array. `depth` bounds the recursion.
Object tensorFrom(Context& context, Object data, unsigned depth) {
  if (depth > unsigned(TensorView::kMaxRank)) context.fail(diag::raggedArray);
  if (!data.is<Sequence*>()) return data;
  std::vector<Object> rows;
  for (Object item : data.as<Sequence*>()->items) rows.push_back(tensorFrom(context, item, depth + 1));
  return stackRows(context, rows);
}

/// Returns numbers as a tensor, in which Python's ints are int64.
Object asTensor(Context& context, Object data) {
  if (data.isArrayLike())
    return broadcast(context, {data}, [&](llvm::ArrayRef<Object> items) { return asTensor(context, items[0]); });
  if (data.ints == Ints::Python) data.ints = Ints::I64;
  return data;
}

/// torch.tensor(data, dtype=None): a number stays a number; a list becomes a table.
Object tensor(Context& context, const Bound& bound) {
  Object data = tensorFrom(context, bound[0], 0);
  if (!data.isArrayLike()) data = scalar(context, data, "tensor");
  return asTensor(context, convertAll(context, bound, data, 1));
}

Object stack(Context& context, const Bound& bound) {
  bool isFirst = !bound.has(1) || (bound[1].is<int64_t>() && bound[1].as<int64_t>() == 0);
  if (!isFirst) context.fail(diag::badArgument, "stack", "`dim` to be 0", context.describe(bound[1]));
  std::vector<Object> rows = context.items(bound[0]);
  return stackRows(context, rows);
}

/// torch.arange([start,] stop[, step]) of ints. A short range of known ints is a table; any other is lazy.
Object arange(Context& context, const Bound& bound) {
  Object parts[3] = {int64_t(0), int64_t(0), int64_t(1)};
  bool isKnown = true;
  for (size_t i = 0; i < 3; ++i) {
    if (!bound.has(i)) continue;
    Object part = decay(context, bound[i]);
    isKnown &= part.is<int64_t>();
    if (!isInt(context, part) || (i == 2 && !part.is<int64_t>()))
      context.fail(diag::badArgument, "arange", "ints, and a step that is known when the mod is compiled",
                   describeOrigin(context, part));
    parts[i] = part;
  }
  auto [start, stop, by] = parts;
  if (!bound.has(1)) std::swap(start, stop);
  const int64_t step = by.as<int64_t>();
  if (step == 0) context.fail(diag::badSliceStep);
  RangeObject range;
  if (isKnown) range = {start.as<int64_t>(), stop.as<int64_t>(), step};
  if (isKnown && range.size() <= kMaxItems) {
    std::vector<Object> items;
    for (uint64_t i = 0; i < range.size(); ++i) items.emplace_back(range.start + int64_t(i) * range.step);
    return asTensor(context,
                    convertAll(context, bound, makeArray(context, {int64_t(range.size())}, std::move(items)), 3));
  }
  if (isKnown && range.size() > uint64_t(ir::kMaxRounds))
    context.fail(diag::tooManyItems, Count(std::min<uint64_t>(range.size(), INT64_MAX)), Count(ir::kMaxRounds));
  Object count = int64_t(range.size());
  if (!isKnown) {
    // (stop - start) / step, rounded up
    Object length = binary(context, BinaryOp::Sub, stop, start);
    count = binary(context, BinaryOp::FloorDiv, length, -step);
    count = lift(context, unary(context, UnaryOp::Neg, count), ir::Type::I32);
  }
  const int64_t extent = extentCode(count);
  Object element = context.module.iter(axisLoop(0, extent));
  if (step != 1) element = binary(context, BinaryOp::Mul, element, step);
  if (!(start.is<int64_t>() && start.as<int64_t>() == 0)) element = binary(context, BinaryOp::Add, element, start);
  return convertAll(context, bound, makeLazy(context, {extent}, element), 3);
}

/// Adds a last axis of one element, along which an array meets a table.
Object withLastAxis(Context& context, Object array) {
  return subscript(context, array, context.makeSequence(false, {Object(EllipsisObject{}), Object(NoneObject{})}));
}

/// Counts the boundaries (in ascending order) below a number; with `right`, also those equal to it. NaN is above all.
Object passed(Context& context, Object x, Object boundaries, bool right) {
  x = decay(context, x);
  boundaries = decay(context, boundaries);
  if (boundaries.is<Sequence*>()) boundaries = asTensor(context, tensorFrom(context, boundaries, 0));
  if (!boundaries.isArrayLike() || shapeOf(context, boundaries).size() != 1)
    context.fail(diag::badArgument, "bucketize", "boundaries of one dim", context.describe(boundaries));
  const auto count = [&](Object value, std::optional<int64_t> axis) {
    const auto isPassed = [&](llvm::ArrayRef<Object> items) {
      return logicalNot(context, compare(context, right ? CompareOp::Gt : CompareOp::Ge, items[0], items[1]));
    };
    return total(context, broadcast(context, {boundaries, value}, isPassed), axis);
  };
  if (x.isArrayLike()) return count(withLastAxis(context, x), -1);
  return count(scalar(context, x, "bucketize"), std::nullopt);
}

/// Returns whether an optional argument is given and true.
bool isSet(Context& context, const Bound& bound, size_t i) { return bound.has(i) && truth(context, bound[i]); }

Object bucketize(Context& context, const Bound& bound) {
  return passed(context, bound[0], bound[1], isSet(context, bound, 2));
}

Object searchSorted(Context& context, const Bound& bound) {
  if (bound.has(4))
    context.fail(diag::badArgument, "searchsorted", "sorted boundaries, and no `sorter`", context.describe(bound[4]));
  const bool isSideRight = bound.has(3) && bound[3].is<const Str*>() && bound[3].as<const Str*>()->text == "right";
  return passed(context, bound[1], bound[0], isSet(context, bound, 2) || isSideRight);
}

/// Tests whether a number is one of the elements; with `invert`, whether it is none.
Object isIn(Context& context, const Bound& bound) {
  Object x = decay(context, bound[0]), elements = decay(context, bound[1]);
  if (elements.is<Sequence*>()) elements = asTensor(context, tensorFrom(context, elements, 0));
  const bool isInverted = isSet(context, bound, 3), isArray = x.isArrayLike();
  if (!isArray) x = scalar(context, x, "isin");
  if (elements.isArrayLike()) {
    int64_t count = 1;
    for (const Object& extent : shapeOf(context, elements)) count *= extent.is<int64_t>() ? extent.as<int64_t>() : 1;
    // As in torch: a number takes the dtype of the elements, but 10 of them or more are sorted with it.
    if (!isArray && holdsInts(context, elements) && count < 10) x.ints = Ints::Python;
    if (isArray && shapeOf(context, elements).size() != 1)
      elements = context.call(findBuiltin("flatten", kMethod), {{elements}, {}});
    if (isArray) x = withLastAxis(context, x);
  }
  if (!elements.isArrayLike()) return compare(context, isInverted ? CompareOp::Ne : CompareOp::Eq, elements, x);
  const Object equal = compare(context, CompareOp::Eq, elements, x);
  const Object found = total(context, equal, isArray ? std::optional<int64_t>(-1) : std::nullopt);
  return compare(context, isInverted ? CompareOp::Eq : CompareOp::Gt, found, int64_t(0));
}

// Shapes ------------------------------------------------------------------------------------------------------------

std::vector<Object> shapeOfAny(Context& context, Object value) {
  return value.isArrayLike() ? shapeOf(context, value) : std::vector<Object>{};
}

/// x.size(), x.size(dim)
Object size(Context& context, const Bound& bound) {
  std::vector<Object> shape = shapeOfAny(context, bound[0]);
  if (!bound.has(1)) return context.makeSequence(false, std::move(shape));
  if (!bound[1].is<int64_t>()) context.fail(diag::badIndex, context.describe(bound[1]));
  return shape[wrapKnownIndex(context, bound[1].as<int64_t>(), shape.size())];
}

Object numel(Context& context, const Bound& bound) {
  Object count = int64_t(1);
  for (Object extent : shapeOfAny(context, bound[0])) count = binary(context, BinaryOp::Mul, count, extent);
  return count;
}

Object dim(Context& context, const Bound& bound) { return int64_t(shapeOfAny(context, bound[0]).size()); }

/// x.transpose(a, b) of a captured tensor.
Object transpose(Context& context, const Bound& bound) {
  if (!bound[0].is<const Tensor*>())
    context.fail(diag::badArgument, bound.builtin->name, "a captured tensor", context.describe(bound[0]));
  Tensor view = *bound[0].as<const Tensor*>();
  int64_t axes[2] = {0, 1};
  for (size_t i = 1; i <= 2; ++i) {
    if (!bound.has(i)) continue;
    if (!bound[i].is<int64_t>()) context.fail(diag::badIndex, context.describe(bound[i]));
    axes[i - 1] = bound[i].as<int64_t>();
  }
  size_t a = wrapKnownIndex(context, axes[0], view.order.size()),
         b = wrapKnownIndex(context, axes[1], view.order.size());
  std::swap(view.order[a], view.order[b]);
  return static_cast<const Tensor*>(context.heap.make<Tensor>(std::move(view)));
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
      {"bucketize", kTorch, "input, boundaries, right=, out_int32=", bucketize},
      {"searchsorted", kTorch, "sorted_sequence, input, right=, side=, sorter=, out_int32=", searchSorted},
      {"isin", kTorch, "elements, test_elements, assume_unique=, invert=", isIn},
      {"size", kMethod, "input, dim=", size},
      {"numel", kTensor, "input", numel},
      {"dim", kMethod, "input", dim},
      {"transpose", kTensor, "input, dim0=, dim1=", transpose},
      {"t", kTensor, "input, dim0=, dim1=", transpose},
  };
  return rows;
}

} // namespace attnc::dsl
