// Functions that make arrays of a shape, and views of arrays: zeros, new_ones, reshape, unsqueeze, permute, ... All are
// lazy, so that extents may be unknown until launch.
#include "dsl/builtins/builtins.h"
#include "dsl/objects/arithmetic.h"
#include "dsl/objects/indexing.h"
#include "dsl/objects/lazy.h"
#include "dsl/objects/scalars.h"
#include "dsl/objects/tables.h"
#include "dsl/objects/tensors.h"

namespace attnc::dsl {

namespace {

using Shape = llvm::SmallVector<int64_t, 4>;
using Indices = llvm::SmallVector<Object, 4>;

int64_t extentArgument(Context& context, const Bound& bound, Object value) {
  value = decay(context, value);
  if (!value.isNumber() || !isInt(context, value))
    context.fail(diag::badArgument, bound.builtin->name, "extents, which are ints", context.describe(value));
  if (value.isTraced()) return extentCode(lift(context, value, ir::Type::I32));
  const int64_t extent = value.as<int64_t>();
  if (extent < -1 || extent > ir::kMaxRounds) context.fail(diag::dimOutOfRange, extent);
  return extent;
}

/// The shape of `f(2, 3)` or `f((2, 3))`. -1 means an inferred extent, so the codes of launch extents are moved below
/// it.
struct AskedShape {
  Shape extents;
  std::optional<size_t> inferred; ///< position of a -1
};

AskedShape shapeArgument(Context& context, const Bound& bound, llvm::ArrayRef<Object> values) {
  std::vector<Object> parts(values.begin(), values.end());
  if (parts.size() == 1 && parts[0].is<Sequence*>()) parts = context.items(parts[0]);
  AskedShape asked;
  if (parts.size() > size_t(TensorView::kMaxRank))
    context.fail(diag::tooManyDims, bound.builtin->name, Count(parts.size()), Count(TensorView::kMaxRank));
  for (Object part : parts) {
    const bool isRest = part.is<int64_t>() && part.as<int64_t>() == -1;
    if (isRest && asked.inferred) context.fail(diag::badArgument, bound.builtin->name, "one -1", "two");
    if (isRest) asked.inferred = asked.extents.size();
    asked.extents.push_back(isRest ? 1 : extentArgument(context, bound, part));
  }
  return asked;
}

/// Makes an array filled with `element`; a number if `shape` is empty.
Object full(Context& context, llvm::ArrayRef<int64_t> shape, Object element) {
  if (shape.empty()) return element;
  if (llvm::is_contained(shape, 0)) return makeArray(context, {0}, {});
  return filled(context, shape, element);
}

Object ofType(Context& context, const Bound& bound, size_t dtype, Object value, NumberType usual) {
  NumberType type = bound.has(dtype) ? dtypeArgument(context, bound[dtype]) : usual;
  return cast(context, scalar(context, value, bound.builtin->name), computedType(context, type));
}

Shape wholeShape(Context& context, const Bound& bound, llvm::ArrayRef<Object> values) {
  AskedShape asked = shapeArgument(context, bound, values);
  if (asked.inferred) context.fail(diag::dimOutOfRange, -1);
  return asked.extents;
}

/// torch.zeros(2, 3), torch.zeros((2, 3))
template <int64_t value> Object constant(Context& context, const Bound& bound) {
  Object element = ofType(context, bound, 1, double(value), NumberType::F32);
  return full(context, wholeShape(context, bound, bound.rest), element);
}

/// torch.full((2, 3), value)
Object fullOf(Context& context, const Bound& bound) {
  Object value = scalar(context, bound[1], "full");
  const NumberType usual = value.is<int64_t>() ? NumberType::I64 : dtypeOf(context, value);
  return full(context, wholeShape(context, bound, bound[0]), ofType(context, bound, 2, value, usual));
}

/// x.new_zeros(2, 3)
template <int64_t value> Object newConstant(Context& context, const Bound& bound) {
  Object element = ofType(context, bound, 2, double(value), dtypeOf(context, bound[0]));
  return full(context, wholeShape(context, bound, bound.rest), element);
}

Object newFull(Context& context, const Bound& bound) {
  return full(context, wholeShape(context, bound, bound[1]),
              ofType(context, bound, 3, bound[2], dtypeOf(context, bound[0])));
}

/// x.new_tensor(data)
Object newTensor(Context& context, const Bound& bound) {
  return context.call(findBuiltin("tensor", kTorch), {{bound[1]}, {}});
}

// Views -------------------------------------------------------------------------------------------------------------

/// Treats a number as a 0-d array.
const Array* lazyArgument(Context& context, Object value) {
  value = decay(context, value);
  if (value.isNumber()) return nullptr;
  if (!value.isArrayLike()) context.fail(diag::expectedNumber, "a view", context.describe(value));
  if (const Array* lazy = lazyOf(context, value)) return lazy;
  if (value.is<const Tensor*>()) failUnindexed(context, *value.as<const Tensor*>());
  return lazyTable(context, *value.as<const Array*>());
}

size_t axisArgument(Context& context, Object value, size_t rank) {
  if (!value.is<int64_t>()) context.fail(diag::badIndex, context.describe(value));
  return wrapKnownIndex(context, value.as<int64_t>(), rank);
}

Object unsqueeze(Context& context, const Bound& bound) {
  const Array* array = lazyArgument(context, bound[0]);
  const size_t rank = array ? array->shape.size() : 0, at = axisArgument(context, bound[1], rank + 1);
  if (!array) return makeArray(context, {1}, {decay(context, bound[0])});
  Shape shape(array->shape.begin(), array->shape.end());
  shape.insert(shape.begin() + int64_t(at), 1);
  return viewLazy(context, *array, shape, [&](llvm::ArrayRef<Object> indices) {
    Indices from(indices.begin(), indices.end());
    from.erase(from.begin() + int64_t(at));
    return from;
  });
}

Object squeeze(Context& context, const Bound& bound) {
  const Array* array = lazyArgument(context, bound[0]);
  if (!array) return bound[0];
  Shape shape;
  llvm::SmallVector<bool, 4> isKept;
  for (size_t i = 0; i < array->shape.size(); ++i) {
    const bool isMeant = !bound.has(1) || axisArgument(context, bound[1], array->shape.size()) == i;
    isKept.push_back(!isMeant || array->shape[i] != 1);
    if (isKept.back()) shape.push_back(array->shape[i]);
  }
  const Array* view = viewLazy(context, *array, shape, [&](llvm::ArrayRef<Object> indices) {
    Indices from;
    for (bool kept : isKept) {
      from.push_back(kept ? indices.front() : Object(int64_t(0)));
      if (kept) indices = indices.drop_front();
    }
    return from;
  });
  return shape.empty() ? *view->element : Object(view);
}

/// Permutes the axes.
Object reordered(Context& context, const Array& array, llvm::ArrayRef<size_t> order) {
  Shape shape;
  for (size_t axis : order) shape.push_back(array.shape[axis]);
  return viewLazy(context, array, shape, [&](llvm::ArrayRef<Object> indices) {
    Indices from(indices.size());
    for (size_t i = 0; i < order.size(); ++i) from[order[i]] = indices[i];
    return from;
  });
}

Object permute(Context& context, const Bound& bound) {
  const Array* array = lazyArgument(context, bound[0]);
  std::vector<Object> dims = bound.rest;
  if (dims.size() == 1 && dims[0].is<Sequence*>()) dims = context.items(dims[0]);
  const size_t rank = array ? array->shape.size() : 0;
  llvm::SmallVector<size_t, 4> order;
  for (Object dim : dims) order.push_back(axisArgument(context, dim, rank));
  llvm::SmallVector<size_t, 4> sorted = order;
  llvm::sort(sorted);
  for (size_t i = 0; i < rank; ++i)
    if (sorted.size() != rank || sorted[i] != i)
      context.fail(diag::badArgument, "permute", "each dim once", context.describe(bound[0]));
  return array ? reordered(context, *array, order) : bound[0];
}

/// Repeats axes of extent 1; -1 keeps an extent.
Object expand(Context& context, const Bound& bound) {
  const Array* array = lazyArgument(context, bound[0]);
  AskedShape asked = shapeArgument(context, bound, bound.rest);
  if (!array) return full(context, asked.extents, decay(context, bound[0]));
  if (asked.extents.size() < array->shape.size())
    context.fail(diag::shapeMismatch, Count(array->shape.size()), Count(asked.extents.size()));
  const size_t more = asked.extents.size() - array->shape.size();
  for (size_t i = 0; i < array->shape.size(); ++i)
    if (array->shape[i] != 1 || asked.inferred == more + i) asked.extents[more + i] = array->shape[i];
  return viewLazy(context, *array, asked.extents, [&](llvm::ArrayRef<Object> indices) {
    Indices from;
    for (size_t i = 0; i < array->shape.size(); ++i)
      from.push_back(array->shape[i] == 1 ? Object(int64_t(0)) : indices[more + i]);
    return from;
  });
}

/// Returns the same elements in row-major order under another shape. The old extents split the flat index.
Object reshaped(Context& context, const Bound& bound, const Array& array, AskedShape asked) {
  auto product = [&](llvm::ArrayRef<int64_t> extents) {
    Object count = int64_t(1);
    for (int64_t extent : extents) count = binary(context, BinaryOp::Mul, count, launchExtent(extent));
    return count;
  };
  Object count = product(array.shape);
  if (asked.inferred) {
    Object rest = binary(context, BinaryOp::FloorDiv, count, product(asked.extents));
    asked.extents[*asked.inferred] = extentArgument(context, bound, rest);
  }
  Object given = product(asked.extents);
  if (count.is<int64_t>() && given.is<int64_t>() && count.as<int64_t>() != given.as<int64_t>())
    context.fail(diag::shapeMismatch, count.as<int64_t>(), given.as<int64_t>());
  if (asked.extents.empty()) {
    Object element = &array;
    while (element.isArrayLike()) element = subscript(context, element, int64_t(0));
    return element;
  }
  return viewLazy(context, array, asked.extents, [&](llvm::ArrayRef<Object> indices) {
    Object flat = int64_t(0);
    for (size_t i = 0; i < indices.size(); ++i)
      flat = binary(context, BinaryOp::Add, binary(context, BinaryOp::Mul, flat, launchExtent(asked.extents[i])),
                    indices[i]);
    Indices from(array.shape.size());
    for (size_t i = array.shape.size(); i-- > 0;) {
      Object extent = launchExtent(array.shape[i]);
      from[i] = i ? binary(context, BinaryOp::Mod, flat, extent) : flat;
      if (i) flat = binary(context, BinaryOp::FloorDiv, flat, extent);
    }
    return from;
  });
}

Object view(Context& context, const Bound& bound) {
  if (bound.rest.size() == 1 && bound.rest[0].is<DTypeObject>())
    context.fail(diag::badArgument, "view", "a shape", context.describe(bound.rest[0]));
  const Array* array = lazyArgument(context, bound[0]);
  AskedShape asked = shapeArgument(context, bound, bound.rest);
  if (!array) return full(context, asked.extents, decay(context, bound[0]));
  return reshaped(context, bound, *array, asked);
}

Object flatten(Context& context, const Bound& bound) {
  const Array* array = lazyArgument(context, bound[0]);
  if (!array) return makeArray(context, {1}, {decay(context, bound[0])});
  const size_t rank = array->shape.size();
  const size_t first = bound.has(1) ? axisArgument(context, bound[1], rank) : 0,
               last = bound.has(2) ? axisArgument(context, bound[2], rank) : rank - 1;
  AskedShape asked;
  for (size_t i = 0; i < rank; ++i) {
    if (i > first && i <= last) continue;
    if (i == first) asked.inferred = asked.extents.size();
    asked.extents.push_back(i == first ? 1 : array->shape[i]);
  }
  return reshaped(context, bound, *array, asked);
}

} // namespace

llvm::ArrayRef<Builtin> viewBuiltins() {
  constexpr unsigned kTensor = kTorch | kMethod;
  static const Builtin rows[] = {
      {"zeros", kTorch, "*size, dtype=, device=, requires_grad=", constant<0>},
      {"ones", kTorch, "*size, dtype=, device=, requires_grad=", constant<1>},
      {"full", kTorch, "size, fill_value, dtype=, device=, requires_grad=", fullOf},
      {"new_zeros", kMethod, "input, *size, dtype=, device=", newConstant<0>},
      {"new_ones", kMethod, "input, *size, dtype=, device=", newConstant<1>},
      {"new_full", kMethod, "input, size, fill_value, dtype=, device=", newFull},
      {"new_tensor", kMethod, "input, data, dtype=, device=", newTensor},
      {"unsqueeze", kTensor, "input, dim", unsqueeze},
      {"squeeze", kTensor, "input, dim=", squeeze},
      {"permute", kTensor, "input, *dims", permute},
      {"expand", kMethod, "input, *sizes", expand},
      {"view", kMethod, "input, *shape", view},
      {"reshape", kTensor, "input, *shape", view},
      {"flatten", kTensor, "input, start_dim=, end_dim=", flatten},
  };
  return rows;
}

} // namespace attnc::dsl
