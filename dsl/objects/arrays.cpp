// In: rows of captured tensors, and tables. Out: a lazy array if all operands are lazy, else an array of scalars with
// all elements written out. Not: extents that are unknown until launch.
#include "dsl/objects/arrays.h"

#include "dsl/objects/lazy.h"
#include "dsl/objects/scalar_operators.h"
#include "dsl/objects/scalars.h"
#include "dsl/objects/tables.h"
#include "dsl/objects/tensors.h"

namespace attnc::dsl {

namespace {

size_t countOf(Context& context, llvm::ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t extent : shape) {
    if (__builtin_mul_overflow(count, extent, &count)) count = INT64_MAX;
    if (count > int64_t(kMaxItems)) context.fail(diag::tooManyItems, count, Count(kMaxItems));
  }
  return size_t(count);
}

/// Reads the elements of the free axes from `position` on, outermost first.
void readAll(Context& context, const Tensor& tensor, llvm::ArrayRef<int64_t> shape, std::vector<Object>& items) {
  if (shape.empty()) {
    items.emplace_back(readElement(context, tensor));
    return;
  }
  for (int64_t i = 0; i < shape[0]; ++i) readAll(context, *indexAxis(context, tensor, 0, i), shape.drop_front(), items);
}

/// Returns the shape that both broadcast to. Extents are aligned at the last axis.
llvm::SmallVector<int64_t, 2> commonShape(Context& context, llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b) {
  if (a.size() < b.size()) std::swap(a, b);
  llvm::SmallVector<int64_t, 2> shape(a.begin(), a.end());
  for (size_t i = 0; i < b.size(); ++i) {
    int64_t& extent = shape[a.size() - 1 - i];
    int64_t other = b[b.size() - 1 - i];
    // Launch extents that meet are equal, or the text would not run.
    if (extent == 1 || (extent < 0 && other > 1))
      extent = other;
    else if (other != 1 && other != extent && other > 0 && extent > 0)
      context.fail(diag::shapeMismatch, extent, other);
  }
  return shape;
}

/// Returns the element of `array` at a flat index of the broadcast shape.
Object elementAt(const Array& array, llvm::ArrayRef<int64_t> shape, size_t flat) {
  size_t at = 0, step = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t extent = shape[shape.size() - 1 - i], index = int64_t(flat) % extent;
    flat /= size_t(extent);
    if (i >= array.shape.size()) continue;
    int64_t own = array.shape[array.shape.size() - 1 - i];
    if (own != 1) at += size_t(index) * step;
    step *= size_t(own);
  }
  return array.items[at];
}

/// Applies `scalarFn` once, to the elements of lazy arrays. Returns nullopt if an operand is not lazy and cannot be
/// made so.
std::optional<Object> broadcastLazy(Context& context, llvm::ArrayRef<Object> operands,
                                    llvm::function_ref<Object(llvm::ArrayRef<Object>)> scalarFn) {
  llvm::SmallVector<const Array*, 4> arrays;
  llvm::SmallVector<int64_t, 2> shape;
  bool hasTable = false;
  for (Object operand : operands) {
    const Array* array = operand.isArrayLike() ? lazyOf(context, operand) : nullptr;
    if (operand.isArrayLike() && !array) {
      if (!operand.is<const Array*>()) return std::nullopt;
      array = operand.as<const Array*>();
      hasTable = true;
    }
    arrays.push_back(array);
    if (array) shape = commonShape(context, shape, array->shape);
  }
  // An operation with a table is unrolled, unless it has an extent that is unknown until launch.
  const auto isOpen = [](int64_t extent) { return extent < 0; };
  if (hasTable &&
      llvm::none_of(arrays, [&](const Array* array) { return array && llvm::any_of(array->shape, isOpen); }))
    return std::nullopt;
  llvm::SmallVector<Object, 4> elements;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (arrays[i] && !arrays[i]->element) arrays[i] = lazyTable(context, *arrays[i]);
    elements.push_back(arrays[i] ? elementFor(context, *arrays[i], shape) : operands[i]);
  }
  Object element = scalarFn(elements);
  return element.isTraced() ? makeLazy(context, shape, element) : filled(context, shape, element);
}

} // namespace

namespace {

/// Returns an element, whose type all have; nullopt if there is none.
std::optional<Object> someItem(Context& context, Object arrayLike) {
  if (const Array* lazy = lazyOf(context, arrayLike)) return lazy->element;
  if (!arrayLike.is<const Array*>() || arrayLike.as<const Array*>()->items.empty()) return std::nullopt;
  return arrayLike.as<const Array*>()->items[0];
}

} // namespace

std::vector<Object> shapeOf(Context& context, Object arrayLike) {
  std::vector<Object> shape;
  if (arrayLike.is<const Array*>()) {
    for (int64_t extent : arrayLike.as<const Array*>()->shape) shape.push_back(launchExtent(extent));
    return shape;
  }
  const Tensor& tensor = *arrayLike.as<const Tensor*>();
  for (unsigned axis : tensor.order)
    shape.push_back(tensor.axes[axis].size ? Object(*tensor.axes[axis].size) : extentOf(context, tensor.number, axis));
  return shape;
}

const Array* toArray(Context& context, Object value) {
  if (value.is<const Array*>()) {
    const Array* array = value.as<const Array*>();
    if (!array->element) return array;
    if (llvm::any_of(array->shape, [](int64_t extent) { return extent < 0; })) failUnindexed(context, *array);
    countOf(context, array->shape);
    return makeArray(context, array->shape, itemsOf(context, *array));
  }
  const Tensor& tensor = *value.as<const Tensor*>();
  llvm::SmallVector<int64_t, 2> shape;
  for (Object extent : shapeOf(context, value)) {
    if (!extent.is<int64_t>()) failUnindexed(context, tensor);
    shape.push_back(extent.as<int64_t>());
  }
  std::vector<Object> items;
  items.reserve(countOf(context, shape));
  readAll(context, tensor, shape, items);
  return makeArray(context, shape, std::move(items));
}

Object broadcast(Context& context, llvm::ArrayRef<Object> operands,
                 llvm::function_ref<Object(llvm::ArrayRef<Object>)> scalarFn) {
  llvm::SmallVector<Object, 4> arrays(operands.begin(), operands.end());
  if (std::optional<Object> lazy = broadcastLazy(context, arrays, scalarFn)) return *lazy;
  llvm::SmallVector<int64_t, 2> shape;
  for (Object& operand : arrays) {
    if (!operand.isArrayLike()) continue;
    operand = toArray(context, operand);
    shape = commonShape(context, shape, operand.as<const Array*>()->shape);
  }
  std::vector<Object> items(countOf(context, shape));
  llvm::SmallVector<Object, 4> row(operands.size());
  for (size_t flat = 0; flat < items.size(); ++flat) {
    context.charge(1);
    for (size_t i = 0; i < arrays.size(); ++i)
      row[i] = arrays[i].is<const Array*>() ? elementAt(*arrays[i].as<const Array*>(), shape, flat) : arrays[i];
    items[flat] = scalarFn(row);
  }
  return makeArray(context, shape, std::move(items));
}

Object reduce(Context& context, Object value, std::optional<int64_t> axis,
              llvm::function_ref<Object(llvm::ArrayRef<Object>)> fold) {
  const Array* lazy = axis ? lazyOf(context, value) : nullptr;
  if (lazy)
    if (auto folded = foldLazy(context, *lazy, wrapKnownIndex(context, *axis, lazy->shape.size()), fold))
      return *folded;
  const Array& array = *toArray(context, value);
  if (array.items.empty()) context.fail(diag::emptyReduction);
  if (!axis || (array.shape.size() == 1 && (*axis == 0 || *axis == -1))) {
    context.charge(array.items.size());
    return fold(array.items);
  }
  size_t along = wrapKnownIndex(context, *axis, array.shape.size());
  llvm::SmallVector<int64_t, 2> shape(array.shape);
  shape.erase(shape.begin() + along);
  size_t inner = 1;
  for (size_t i = along + 1; i < array.shape.size(); ++i) inner *= size_t(array.shape[i]);
  size_t extent = size_t(array.shape[along]);
  std::vector<Object> items;
  for (size_t flat = 0; flat < array.items.size() / extent; ++flat) {
    std::vector<Object> line;
    for (size_t i = 0; i < extent; ++i) line.push_back(array.items[(flat / inner * extent + i) * inner + flat % inner]);
    context.charge(1 + extent);
    items.push_back(fold(line));
  }
  return makeArray(context, shape, std::move(items));
}

Object total(Context& context, Object value, std::optional<int64_t> axis) {
  if (const Array* lazy = lazyOf(context, value)) {
    std::optional<size_t> along;
    if (axis) along = wrapKnownIndex(context, *axis, lazy->shape.size());
    if (std::optional<Object> sum = sumLazy(context, *lazy, along)) return *sum;
  }
  auto counted = [&](Object x) { return isFloat(context, x) ? x : cast(context, x, NumberType::I64); };
  return reduce(context, value, axis, [&](llvm::ArrayRef<Object> items) {
    Object sum = counted(items[0]);
    for (Object item : items.drop_front()) sum = binaryScalars(context, BinaryOp::Add, sum, counted(item));
    return sum;
  });
}

bool holdsInts(Context& context, Object arrayLike) {
  const std::optional<Object> one = someItem(context, arrayLike);
  return one && isInt(context, *one);
}

Object totalAsItems(Context& context, Object value, std::optional<int64_t> axis) {
  const Object sum = total(context, value, axis);
  if (!holdsInts(context, value)) return sum;
  const NumberType type = numberTypeOf({ir::Type::I64, someItem(context, value)->ints});
  if (!sum.isArrayLike()) return cast(context, sum, type);
  return broadcast(context, {sum}, [&](llvm::ArrayRef<Object> items) { return cast(context, items[0], type); });
}

} // namespace attnc::dsl
