// Functions that make arrays of a shape, and views of arrays: zeros, new_ones, reshape, unsqueeze, permute, ... All are
// lazy, so that extents may be unknown until launch.
#include "dsl/builtins/builtins.h"
#include "dsl/objects/arithmetic.h"
#include "dsl/objects/arrays.h"
#include "dsl/objects/indexing.h"
#include "dsl/objects/lazy.h"
#include "dsl/tracing/tracer.h"

namespace attnc::dsl {

namespace {

using Shape = llvm::SmallVector<int64_t, 4>;
using Indices = llvm::SmallVector<Object, 4>;

int64_t extentArgument(Tracer& tracer, const Bound& bound, Object value) {
  value = decay(tracer, value);
  const bool isInt = value.is<int64_t>() || (value.isTraced() && tracer.type(value.as<ir::Value>()) == ir::Type::I32);
  if (!isInt) tracer.fail(diag::badArgument, bound.builtin->name, "extents, which are ints", tracer.describe(value));
  if (value.isTraced()) return extentCode(value);
  const int64_t extent = value.as<int64_t>();
  if (extent < -1 || extent > ir::kMaxRounds) tracer.fail(diag::dimOutOfRange, extent);
  return extent;
}

/// The shape of `f(2, 3)` or `f((2, 3))`. -1 means an inferred extent, so the codes of launch extents are moved below
/// it.
struct AskedShape {
  Shape extents;
  std::optional<size_t> inferred; ///< position of a -1
};

AskedShape shapeArgument(Tracer& tracer, const Bound& bound, llvm::ArrayRef<Object> values) {
  std::vector<Object> parts(values.begin(), values.end());
  if (parts.size() == 1 && parts[0].is<Sequence*>()) parts = tracer.items(parts[0]);
  AskedShape asked;
  if (parts.size() > size_t(TensorView::kMaxRank))
    tracer.fail(diag::tooManyDims, bound.builtin->name, Count(parts.size()), Count(TensorView::kMaxRank));
  for (Object part : parts) {
    const bool isRest = part.is<int64_t>() && part.as<int64_t>() == -1;
    if (isRest && asked.inferred) tracer.fail(diag::badArgument, bound.builtin->name, "one -1", "two");
    if (isRest) asked.inferred = asked.extents.size();
    asked.extents.push_back(isRest ? 1 : extentArgument(tracer, bound, part));
  }
  return asked;
}

/// Makes an array filled with `element`; a number if `shape` is empty.
Object full(Tracer& tracer, llvm::ArrayRef<int64_t> shape, Object element) {
  if (shape.empty()) return element;
  if (llvm::is_contained(shape, 0)) return makeArray(tracer, {0}, {});
  return filled(tracer, shape, element);
}

Object ofType(Tracer& tracer, const Bound& bound, size_t dtype, Object value, NumberType usual) {
  NumberType type = bound.has(dtype) ? dtypeArgument(tracer, bound[dtype]) : usual;
  return cast(tracer, scalar(tracer, value, bound.builtin->name), computedType(tracer, type));
}

Shape wholeShape(Tracer& tracer, const Bound& bound, llvm::ArrayRef<Object> values) {
  AskedShape asked = shapeArgument(tracer, bound, values);
  if (asked.inferred) tracer.fail(diag::dimOutOfRange, -1);
  return asked.extents;
}

/// torch.zeros(2, 3), torch.zeros((2, 3))
template <int64_t value> Object constant(Tracer& tracer, const Bound& bound) {
  Object element = ofType(tracer, bound, 1, double(value), NumberType::F32);
  return full(tracer, wholeShape(tracer, bound, bound.rest), element);
}

/// torch.full((2, 3), value)
Object fullOf(Tracer& tracer, const Bound& bound) {
  Object value = scalar(tracer, bound[1], "full");
  const NumberType usual = value.is<int64_t>() ? NumberType::I64 : dtypeOf(tracer, value);
  return full(tracer, wholeShape(tracer, bound, bound[0]), ofType(tracer, bound, 2, value, usual));
}

/// x.new_zeros(2, 3)
template <int64_t value> Object newConstant(Tracer& tracer, const Bound& bound) {
  Object element = ofType(tracer, bound, 2, double(value), dtypeOf(tracer, bound[0]));
  return full(tracer, wholeShape(tracer, bound, bound.rest), element);
}

Object newFull(Tracer& tracer, const Bound& bound) {
  return full(tracer, wholeShape(tracer, bound, bound[1]),
              ofType(tracer, bound, 3, bound[2], dtypeOf(tracer, bound[0])));
}

/// x.new_tensor(data)
Object newTensor(Tracer& tracer, const Bound& bound) {
  return tracer.call(findBuiltin("tensor", kTorch), {{bound[1]}, {}});
}

// Views -------------------------------------------------------------------------------------------------------------

/// Treats a number as a 0-d array.
const Array* lazyArgument(Tracer& tracer, Object value) {
  value = decay(tracer, value);
  if (value.isNumber()) return nullptr;
  if (!value.isArrayLike()) tracer.fail(diag::expectedNumber, "a view", tracer.describe(value));
  if (const Array* lazy = lazyOf(tracer, value)) return lazy;
  if (value.is<const Tensor*>()) failUnindexed(tracer, *value.as<const Tensor*>());
  return lazyTable(tracer, *value.as<const Array*>());
}

size_t axisArgument(Tracer& tracer, Object value, size_t rank) {
  if (!value.is<int64_t>()) tracer.fail(diag::badIndex, tracer.describe(value));
  return wrapKnownIndex(tracer, value.as<int64_t>(), rank);
}

Object unsqueeze(Tracer& tracer, const Bound& bound) {
  const Array* array = lazyArgument(tracer, bound[0]);
  const size_t rank = array ? array->shape.size() : 0, at = axisArgument(tracer, bound[1], rank + 1);
  if (!array) return makeArray(tracer, {1}, {decay(tracer, bound[0])});
  Shape shape(array->shape.begin(), array->shape.end());
  shape.insert(shape.begin() + int64_t(at), 1);
  return viewLazy(tracer, *array, shape, [&](llvm::ArrayRef<Object> indices) {
    Indices from(indices.begin(), indices.end());
    from.erase(from.begin() + int64_t(at));
    return from;
  });
}

Object squeeze(Tracer& tracer, const Bound& bound) {
  const Array* array = lazyArgument(tracer, bound[0]);
  if (!array) return bound[0];
  Shape shape;
  llvm::SmallVector<bool, 4> isKept;
  for (size_t i = 0; i < array->shape.size(); ++i) {
    const bool isMeant = !bound.has(1) || axisArgument(tracer, bound[1], array->shape.size()) == i;
    isKept.push_back(!isMeant || array->shape[i] != 1);
    if (isKept.back()) shape.push_back(array->shape[i]);
  }
  const Array* view = viewLazy(tracer, *array, shape, [&](llvm::ArrayRef<Object> indices) {
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
Object reordered(Tracer& tracer, const Array& array, llvm::ArrayRef<size_t> order) {
  Shape shape;
  for (size_t axis : order) shape.push_back(array.shape[axis]);
  return viewLazy(tracer, array, shape, [&](llvm::ArrayRef<Object> indices) {
    Indices from(indices.size());
    for (size_t i = 0; i < order.size(); ++i) from[order[i]] = indices[i];
    return from;
  });
}

Object permute(Tracer& tracer, const Bound& bound) {
  const Array* array = lazyArgument(tracer, bound[0]);
  std::vector<Object> dims = bound.rest;
  if (dims.size() == 1 && dims[0].is<Sequence*>()) dims = tracer.items(dims[0]);
  const size_t rank = array ? array->shape.size() : 0;
  llvm::SmallVector<size_t, 4> order;
  for (Object dim : dims) order.push_back(axisArgument(tracer, dim, rank));
  llvm::SmallVector<size_t, 4> sorted = order;
  llvm::sort(sorted);
  for (size_t i = 0; i < rank; ++i)
    if (sorted.size() != rank || sorted[i] != i)
      tracer.fail(diag::badArgument, "permute", "each dim once", tracer.describe(bound[0]));
  return array ? reordered(tracer, *array, order) : bound[0];
}

/// Repeats axes of extent 1; -1 keeps an extent.
Object expand(Tracer& tracer, const Bound& bound) {
  const Array* array = lazyArgument(tracer, bound[0]);
  AskedShape asked = shapeArgument(tracer, bound, bound.rest);
  if (!array) return full(tracer, asked.extents, decay(tracer, bound[0]));
  if (asked.extents.size() < array->shape.size())
    tracer.fail(diag::shapeMismatch, Count(array->shape.size()), Count(asked.extents.size()));
  const size_t more = asked.extents.size() - array->shape.size();
  for (size_t i = 0; i < array->shape.size(); ++i)
    if (array->shape[i] != 1 || asked.inferred == more + i) asked.extents[more + i] = array->shape[i];
  return viewLazy(tracer, *array, asked.extents, [&](llvm::ArrayRef<Object> indices) {
    Indices from;
    for (size_t i = 0; i < array->shape.size(); ++i)
      from.push_back(array->shape[i] == 1 ? Object(int64_t(0)) : indices[more + i]);
    return from;
  });
}

/// Returns the same elements in row-major order under another shape. The old extents split the flat index.
Object reshaped(Tracer& tracer, const Bound& bound, const Array& array, AskedShape asked) {
  auto product = [&](llvm::ArrayRef<int64_t> extents) {
    Object count = int64_t(1);
    for (int64_t extent : extents) count = binary(tracer, BinaryOp::Mul, count, launchExtent(extent));
    return count;
  };
  Object count = product(array.shape);
  if (asked.inferred) {
    Object rest = binary(tracer, BinaryOp::FloorDiv, count, product(asked.extents));
    asked.extents[*asked.inferred] = extentArgument(tracer, bound, rest);
  }
  Object given = product(asked.extents);
  if (count.is<int64_t>() && given.is<int64_t>() && count.as<int64_t>() != given.as<int64_t>())
    tracer.fail(diag::shapeMismatch, count.as<int64_t>(), given.as<int64_t>());
  if (asked.extents.empty()) {
    Object element = &array;
    while (element.isArrayLike()) element = subscript(tracer, element, int64_t(0));
    return element;
  }
  return viewLazy(tracer, array, asked.extents, [&](llvm::ArrayRef<Object> indices) {
    Object flat = int64_t(0);
    for (size_t i = 0; i < indices.size(); ++i)
      flat = binary(tracer, BinaryOp::Add, binary(tracer, BinaryOp::Mul, flat, launchExtent(asked.extents[i])),
                    indices[i]);
    Indices from(array.shape.size());
    for (size_t i = array.shape.size(); i-- > 0;) {
      Object extent = launchExtent(array.shape[i]);
      from[i] = i ? binary(tracer, BinaryOp::Mod, flat, extent) : flat;
      if (i) flat = binary(tracer, BinaryOp::FloorDiv, flat, extent);
    }
    return from;
  });
}

Object view(Tracer& tracer, const Bound& bound) {
  if (bound.rest.size() == 1 && bound.rest[0].is<DTypeObject>())
    tracer.fail(diag::badArgument, "view", "a shape", tracer.describe(bound.rest[0]));
  const Array* array = lazyArgument(tracer, bound[0]);
  AskedShape asked = shapeArgument(tracer, bound, bound.rest);
  if (!array) return full(tracer, asked.extents, decay(tracer, bound[0]));
  return reshaped(tracer, bound, *array, asked);
}

Object flatten(Tracer& tracer, const Bound& bound) {
  const Array* array = lazyArgument(tracer, bound[0]);
  if (!array) return makeArray(tracer, {1}, {decay(tracer, bound[0])});
  const size_t rank = array->shape.size();
  const size_t first = bound.has(1) ? axisArgument(tracer, bound[1], rank) : 0,
               last = bound.has(2) ? axisArgument(tracer, bound[2], rank) : rank - 1;
  AskedShape asked;
  for (size_t i = 0; i < rank; ++i) {
    if (i > first && i <= last) continue;
    if (i == first) asked.inferred = asked.extents.size();
    asked.extents.push_back(i == first ? 1 : array->shape[i]);
  }
  return reshaped(tracer, bound, *array, asked);
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
