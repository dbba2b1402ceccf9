// In: a base and an index. Out: the item; for a captured tensor a view with fewer axes, which becomes a Load once all
// axes are indexed. A traced index that may be negative counts from the end, as torch has it.
// Not: bounds of traced indices; code generation proves them or clamps.
#include "dsl/objects/indexing.h"

#include "dsl/objects/arithmetic.h"
#include "dsl/objects/arrays.h"
#include "dsl/objects/known_numbers.h"
#include "dsl/objects/lazy.h"

namespace attnc::dsl {

using ir::Op;
using ir::Type;

size_t wrapKnownIndex(Context& context, int64_t index, size_t size) {
  int64_t wrapped = index < 0 ? index + int64_t(size) : index;
  if (wrapped < 0 || wrapped >= int64_t(size)) context.fail(diag::indexOutOfRange, index, Count(size));
  return size_t(wrapped);
}

Value extentOf(Context& context, unsigned tensor, unsigned axis) {
  const ir::Extent& extent = context.module.tensors[tensor].shape[axis];
  if (extent.isNamed) return context.module.dim(unsigned(extent.value));
  return extent.value;
}

Value wholeTensor(Context& context, unsigned number) {
  Tensor tensor;
  tensor.number = number;
  for (const ir::Extent& extent : context.module.tensors[number].shape) {
    Tensor::Axis axis;
    if (!extent.isNamed) axis.size = extent.value;
    tensor.order.push_back(unsigned(tensor.axes.size()));
    tensor.axes.push_back(axis);
  }
  return static_cast<const Tensor*>(context.heap.make<Tensor>(std::move(tensor)));
}

ir::Value readElement(Context& context, const Tensor& tensor) {
  llvm::SmallVector<ir::Value, 4> indices;
  for (const Tensor::Axis& axis : tensor.axes) indices.push_back(*axis.index);
  ir::Value element =
      context.make(Op::Load, ir::loadedType(context.module.tensors[tensor.number].dtype), indices, tensor.number);
  return tensor.isDetached ? stopGradient(context, element) : element;
}

namespace {

/// An int that stands for itself plus the size where it is negative.
ir::Value wrapTraced(Context& context, Value index, Value size) {
  Type type = promote(context, {index, size}, /*arithmetic=*/true);
  ir::Value value = lift(context, index, type);
  if (context.isNonNegative(value)) return value;
  ir::Value zero = context.module.constInt(type, 0);
  ir::Value fromEnd = context.make(Op::Add, type, {value, lift(context, size, type)});
  return context.make(Op::Select, type, {context.make(Op::Lt, Type::Bool, {value, zero}), fromEnd, value});
}

} // namespace

ir::Value axisIndex(Context& context, Value index, Value size) {
  index = decay(context, index);
  if (index.isTraced()) {
    Type type = context.type(index.as<ir::Value>());
    if (type != Type::I32 && type != Type::I64) context.fail(diag::badIndex, context.describe(index));
    return wrapTraced(context, index, size);
  }
  if (!index.is<int64_t>()) context.fail(diag::badIndex, context.describe(index));
  int64_t known = index.as<int64_t>();
  if (size.is<int64_t>()) known = int64_t(wrapKnownIndex(context, known, size_t(size.as<int64_t>())));
  if (known >= 0) return lift(context, known, promote(context, {Value(known)}, true));
  Type type = promote(context, {Value(known), size}, true);
  return context.make(Op::Add, type, {lift(context, size, type), lift(context, known, type)});
}

namespace {

int64_t sliceBound(Context& context, Value bound, int64_t missing) {
  if (bound.is<NoneValue>()) return missing;
  if (!bound.is<int64_t>()) context.fail(diag::badIndex, context.describe(bound));
  return bound.as<int64_t>();
}

/// A slice over `size` items as first index, step and count, clamped as Python does.
struct Bounds {
  int64_t start = 0, step = 1, count = 0;
};
Bounds resolveSlice(Context& context, const SliceValue& slice, int64_t size) {
  Bounds bounds;
  bounds.step = sliceBound(context, slice.step, 1);
  if (bounds.step == 0 || bounds.step == INT64_MIN) context.fail(diag::badSliceStep);
  bool down = bounds.step < 0;
  auto clampTo = [&](int64_t index) {
    if (index < 0) index += size;
    return std::clamp<int64_t>(index, down ? -1 : 0, down ? size - 1 : size);
  };
  bounds.start = slice.start.is<NoneValue>() ? (down ? size - 1 : 0) : clampTo(sliceBound(context, slice.start, 0));
  int64_t stop = slice.stop.is<NoneValue>() ? (down ? -1 : size) : clampTo(sliceBound(context, slice.stop, 0));
  bounds.count = int64_t(Range{bounds.start, stop, bounds.step}.size());
  return bounds;
}

bool isWholeSlice(const SliceValue& slice) {
  return slice.start.is<NoneValue>() && slice.stop.is<NoneValue>() && slice.step.is<NoneValue>();
}

const Tensor* sliceAxis(Context& context, const Tensor& tensor, size_t position, const SliceValue& slice) {
  if (isWholeSlice(slice)) return &tensor;
  auto* result = context.heap.make<Tensor>(tensor);
  Tensor::Axis& axis = result->axes[tensor.order[position]];
  if (!axis.size) context.fail(diag::sliceOfNamedExtent, context.module.tensors[tensor.number].name);
  Bounds bounds = resolveSlice(context, slice, *axis.size);
  axis.start += bounds.start * axis.step;
  axis.step *= bounds.step;
  axis.size = bounds.count;
  return result;
}

/// The index split into its parts: a tuple's items, or one.
llvm::SmallVector<Value, 4> parts(Value index) {
  if (index.is<Sequence*>() && !index.as<Sequence*>()->isList)
    return {index.as<Sequence*>()->items.begin(), index.as<Sequence*>()->items.end()};
  return {index};
}

Value indexTensor(Context& context, const Tensor& whole, Value index) {
  llvm::SmallVector<Value, 4> indices = parts(index);
  const Tensor* tensor = &whole;
  size_t position = 0, given = 0;
  for (Value part : indices) given += !part.is<EllipsisValue>();
  if (given > whole.order.size())
    context.fail(diag::tooManyIndices, context.module.tensors[whole.number].name, Count(whole.order.size()),
                 Count(given));
  for (Value part : indices) {
    if (part.is<EllipsisValue>()) {
      if (indices.size() - given > 1) context.fail(diag::badIndex, "a second `...`");
      position += whole.order.size() - given;
    } else if (part.is<const SliceValue*>()) {
      tensor = sliceAxis(context, *tensor, position++, *part.as<const SliceValue*>());
    } else {
      tensor = indexAxis(context, *tensor, position, part);
    }
  }
  return tensor;
}

/// Each part of the index takes an axis, or keeps it as a slice does.
Value indexLazyArray(Context& context, const Array& array, llvm::ArrayRef<Value> indices) {
  Value result = &array;
  for (Value part : indices) {
    const Array& rows = *result.as<const Array*>();
    if (!part.is<const SliceValue*>()) {
      result = indexLazy(context, rows, part);
      continue;
    }
    Bounds bounds = resolveSlice(context, *part.as<const SliceValue*>(), rows.shape[0]);
    if (indices.size() > 1) context.fail(diag::badIndex, context.describe(part));
    if (bounds.count == 0) return makeArray(context, {0}, {});
    result = sliceLazy(context, rows, bounds.start, bounds.step, bounds.count);
  }
  return result;
}

/// The captured tensor that a value is computed from; null if there is none.
const ir::TensorCapture* captureBehind(Context& context, Value value) {
  if (!value.isTraced()) return nullptr;
  std::vector<bool> needed(value.as<ir::Value>().id + 1, false);
  needed.back() = true;
  for (uint32_t id = uint32_t(needed.size()); id-- > 0;) {
    if (!needed[id]) continue;
    const ir::Node& node = context.module[{id}];
    if (node.op == Op::Load) return &context.module.tensors[node.attr];
    for (ir::Value operand : node.operands) needed[operand.id] = true;
  }
  return nullptr;
}

/// table[i] for a traced i: chains of selects, one for each element of a row. An index outside takes the last row.
Value chooseRow(Context& context, const Array& array, Value index) {
  if (array.items.size() > kMaxTableLookup)
    if (const ir::TensorCapture* capture = captureBehind(context, array.items.front()))
      context.fail(diag::tableOfCapture, Count(array.items.size()), capture->name, Count(kMaxTableLookup));
  if (array.items.empty() || array.items.size() > kMaxTableLookup)
    context.fail(diag::tableTooLarge, Count(array.items.size()), Count(kMaxTableLookup));
  size_t rows = size_t(array.shape[0]), inner = array.items.size() / rows;
  Value at = axisIndex(context, index, array.shape[0]);
  std::vector<Value> items(array.items.end() - int64_t(inner), array.items.end());
  for (size_t row = rows - 1; row-- > 0;) {
    Value isHere = compare(context, CompareOp::Eq, at, int64_t(row));
    for (size_t i = 0; i < inner; ++i) items[i] = select(context, isHere, array.items[row * inner + i], items[i]);
  }
  if (array.shape.size() == 1) return items[0];
  return makeArray(context, llvm::ArrayRef<int64_t>(array.shape).drop_front(), std::move(items));
}

Value indexArray(Context& context, const Array& array, Value index) {
  llvm::SmallVector<Value, 4> indices = parts(index);
  if (indices.size() > array.shape.size())
    context.fail(diag::tooManyIndices, "this array", Count(array.shape.size()), Count(indices.size()));
  if (array.element) return indexLazyArray(context, array, indices);
  Value result = &array;
  for (Value part : indices) {
    const Array& rows = *result.as<const Array*>();
    part = decay(context, part);
    if (part.isTraced()) {
      result = chooseRow(context, rows, part);
      continue;
    }
    size_t inner = rows.shape[0] ? rows.items.size() / size_t(rows.shape[0]) : 0;
    Bounds bounds;
    if (part.is<const SliceValue*>() && indices.size() == 1) {
      bounds = resolveSlice(context, *part.as<const SliceValue*>(), rows.shape[0]);
    } else {
      if (!part.is<int64_t>()) context.fail(diag::badIndex, context.describe(part));
      bounds = {int64_t(wrapKnownIndex(context, part.as<int64_t>(), size_t(rows.shape[0]))), 1, -1};
    }
    std::vector<Value> items;
    for (int64_t i = 0; i < std::abs(bounds.count); ++i)
      for (size_t j = 0; j < inner; ++j)
        items.push_back(rows.items[size_t(bounds.start + i * bounds.step) * inner + j]);
    llvm::SmallVector<int64_t, 2> shape(rows.shape.begin() + 1, rows.shape.end());
    if (bounds.count >= 0) shape.insert(shape.begin(), bounds.count);
    result = shape.empty() ? items[0] : Value(makeArray(context, shape, std::move(items)));
  }
  return result;
}

Value indexSequence(Context& context, Value base, Value index) {
  const Sequence& sequence = *base.as<Sequence*>();
  index = decay(context, index);
  if (index.is<const SliceValue*>()) {
    Bounds bounds = resolveSlice(context, *index.as<const SliceValue*>(), int64_t(sequence.items.size()));
    std::vector<Value> items;
    for (int64_t i = 0; i < bounds.count; ++i) items.push_back(sequence.items[size_t(bounds.start + i * bounds.step)]);
    return context.makeSequence(sequence.isList, std::move(items));
  }
  if (index.isTraced()) context.fail(diag::tracedListIndex, context.describe(base));
  if (!index.is<int64_t>()) context.fail(diag::badIndex, context.describe(index));
  return sequence.items[wrapKnownIndex(context, index.as<int64_t>(), sequence.items.size())];
}

} // namespace

const Tensor* indexAxis(Context& context, const Tensor& tensor, size_t position, Value index) {
  context.charge(1);
  auto* result = context.heap.make<Tensor>(tensor);
  unsigned number = tensor.order[position];
  Tensor::Axis& axis = result->axes[number];
  Value size = axis.size ? Value(*axis.size) : extentOf(context, tensor.number, number);
  Value at = axisIndex(context, index, size);
  if (axis.start != 0 || axis.step != 1)
    at = binary(context, BinaryOp::Add, axis.start, binary(context, BinaryOp::Mul, at, axis.step));
  axis.index = at.as<ir::Value>();
  result->order.erase(result->order.begin() + position);
  return result;
}

Value subscript(Context& context, Value base, Value index) {
  if (base.is<const Tensor*>()) return indexTensor(context, *base.as<const Tensor*>(), index);
  if (base.is<const Array*>()) return indexArray(context, *base.as<const Array*>(), index);
  if (base.is<Sequence*>()) return indexSequence(context, base, index);
  if (base.is<const Range*>() && index.is<int64_t>()) {
    const Range& range = *base.as<const Range*>();
    size_t size = size_t(std::min<uint64_t>(range.size(), INT64_MAX));
    return range.start + int64_t(wrapKnownIndex(context, index.as<int64_t>(), size)) * range.step;
  }
  // A number is a 0-d tensor: score[()] and score[...] are itself.
  bool isEmpty = index.is<EllipsisValue>() || (index.is<Sequence*>() && index.as<Sequence*>()->items.empty());
  if (base.isNumber() && isEmpty) return base;
  context.fail(diag::notIndexable, context.describe(base));
}

void assignSubscript(Context& context, Value base, Value index, Value value) {
  if (base.isArrayLike()) context.fail(diag::readOnly, context.describe(base));
  if (!base.is<Sequence*>() || !base.as<Sequence*>()->isList) context.fail(diag::notAssignable, context.describe(base));
  auto& items = base.as<Sequence*>()->items;
  if (!index.is<int64_t>()) context.fail(diag::badIndex, context.describe(index));
  items[wrapKnownIndex(context, index.as<int64_t>(), items.size())] = value;
}

} // namespace attnc::dsl
