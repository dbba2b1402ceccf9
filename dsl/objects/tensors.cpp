#include "dsl/objects/tensors.h"

#include "dsl/ir_names.h"
#include "dsl/objects/repairs.h"
#include "dsl/objects/scalar_operators.h"
#include "dsl/objects/scalars.h"

#include <llvm/ADT/Sequence.h>

namespace attnc::dsl {

namespace {

Ints intsOf(DType dtype) {
  switch (dtype) {
  case DType::U8: return Ints::U8;
  case DType::I8: return Ints::I8;
  case DType::I16: return Ints::I16;
  case DType::I32: return Ints::I32;
  default: return Ints::I64;
  }
}

} // namespace

size_t wrapKnownIndex(Context& context, int64_t index, size_t size) {
  int64_t wrapped = index < 0 ? index + int64_t(size) : index;
  if (wrapped < 0 || wrapped >= int64_t(size)) context.fail(diag::indexOutOfRange, index, Count(size), Count(size) - 1);
  return size_t(wrapped);
}

Object extentOf(Context& context, unsigned tensor, unsigned axis) {
  const ir::Extent& extent = context.module.tensors[tensor].shape[axis];
  if (extent.isNamed) return Object(context.module.dim(unsigned(extent.value)), Ints::Python);
  return extent.value;
}

Object wholeTensor(Context& context, unsigned number) {
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

Object readElement(Context& context, const Tensor& tensor) {
  llvm::SmallVector<ir::Value, 4> indices;
  for (const Tensor::Axis& axis : tensor.axes) indices.push_back(*axis.index);
  const DType dtype = context.module.tensors[tensor.number].dtype;
  const Object element(context.make(Op::Load, ir::loadedType(dtype), indices, tensor.number), intsOf(dtype));
  return tensor.isDetached ? stopGradient(context, element) : element;
}

namespace {

/// Returns the IR type that holds two ints, known or traced.
Type typeOfBoth(Context& context, Object a, Object b) {
  a.ints = b.ints = Ints::Python;
  return promote(context, {a, b}, /*arithmetic=*/true).type;
}

/// Returns the index, plus the size if it is negative.
ir::Value wrapTraced(Context& context, Object index, Object size) {
  const Type type = typeOfBoth(context, index, size);
  ir::Value value = lift(context, index, type);
  if (context.isNonNegative(value)) return value;
  ir::Value zero = context.module.constInt(type, 0);
  ir::Value fromEnd = context.make(Op::Add, type, {value, lift(context, size, type)});
  return context.make(Op::Select, type, {context.make(Op::Lt, Type::Bool, {value, zero}), fromEnd, value});
}

} // namespace

ir::Value axisIndex(Context& context, Object index, Object size) {
  index = decay(context, index);
  if (index.isTraced()) {
    Type type = context.type(index.as<ir::Value>());
    if (type != Type::I32 && type != Type::I64) context.fail(diag::badIndex, context.describe(index));
    return wrapTraced(context, index, size);
  }
  if (!index.is<int64_t>()) context.fail(diag::badIndex, context.describe(index));
  int64_t known = index.as<int64_t>();
  if (size.is<int64_t>()) known = int64_t(wrapKnownIndex(context, known, size_t(size.as<int64_t>())));
  const Type type = typeOfBoth(context, known, known >= 0 ? Object(known) : size);
  if (known >= 0) return lift(context, known, type);
  return context.make(Op::Add, type, {lift(context, size, type), lift(context, known, type)});
}

const Tensor* indexAxis(Context& context, const Tensor& tensor, size_t position, Object index) {
  context.charge(1);
  auto* result = context.heap.make<Tensor>(tensor);
  unsigned number = tensor.order[position];
  Tensor::Axis& axis = result->axes[number];
  Object size = axis.size ? Object(*axis.size) : extentOf(context, tensor.number, number);
  Object at = axisIndex(context, index, size);
  if (axis.start != 0 || axis.step != 1)
    at = binaryScalars(context, BinaryOp::Add, axis.start, binaryScalars(context, BinaryOp::Mul, at, axis.step));
  axis.index = at.as<ir::Value>();
  result->order.erase(result->order.begin() + position);
  return result;
}

void failUnindexed(Context& context, const Tensor& tensor) {
  const ir::TensorCapture& capture = context.module.tensors[tensor.number];
  // attnc itself indexes an axis of one element if the whole tensor is an operand.
  const bool someIndexed = llvm::any_of(llvm::seq<unsigned>(0, unsigned(tensor.axes.size())), [&](unsigned axis) {
    const ir::Extent& extent = capture.shape[axis];
    return !llvm::is_contained(tensor.order, axis) && (extent.isNamed || extent.value != 1);
  });
  if (someIndexed)
    context.fail(diag::tensorNeedsIndex, capture.name, counted(tensor.axes.size(), "dim", "dims"),
                 counted(tensor.axes.size() - tensor.order.size(), "index", "indices"),
                 elementText(context.module, tensor.number));
  context.fail(diag::wholeTensor, capture.name, elementText(context.module, tensor.number));
}

Object decay(Context& context, Object value) {
  if (value.is<const Deferred*>()) context.force(*value.as<const Deferred*>());
  if (!value.is<const Tensor*>() || !value.as<const Tensor*>()->order.empty()) return value;
  return readElement(context, *value.as<const Tensor*>());
}

Object scalar(Context& context, Object value, const char* what) {
  value = decay(context, value);
  if (value.is<const Tensor*>()) failUnindexed(context, *value.as<const Tensor*>());
  if (!value.isNumber()) context.fail(diag::expectedNumber, what, context.describe(value));
  return value;
}

} // namespace attnc::dsl
