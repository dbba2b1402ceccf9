// In: a base and an index. Out: the item. For a captured tensor, a view with fewer axes, which becomes a Load once all
// axes are indexed. As in torch, a traced index that may be negative counts from the end. Not: bounds of traced
// indices. Code generation clamps an index unless it is proven to be inside.
#include "dsl/objects/indexing.h"

#include "dsl/ir_names.h"
#include "dsl/objects/comparison.h"
#include "dsl/objects/lazy.h"
#include "dsl/objects/repairs.h"
#include "dsl/objects/scalar_operators.h"
#include "dsl/objects/tables.h"
#include "dsl/objects/tensors.h"

#include <fmt/format.h>

namespace attnc::dsl {

namespace {

int64_t sliceBound(Context& context, Object bound, int64_t missing) {
  if (bound.is<NoneObject>()) return missing;
  if (!bound.is<int64_t>()) context.fail(diag::badIndex, context.describe(bound));
  return bound.as<int64_t>();
}

/// The first index, step and count of a slice over `size` items, clamped as in Python.
struct ItemRun {
  int64_t start = 0, step = 1, count = 0;
};
ItemRun resolveSlice(Context& context, const SliceObject& slice, int64_t size) {
  ItemRun run;
  run.step = sliceBound(context, slice.step, 1);
  if (run.step == 0 || run.step == INT64_MIN) context.fail(diag::badSliceStep);
  bool down = run.step < 0;
  auto clampTo = [&](int64_t index) {
    if (index < 0) index += size;
    return std::clamp<int64_t>(index, down ? -1 : 0, down ? size - 1 : size);
  };
  run.start = slice.start.is<NoneObject>() ? (down ? size - 1 : 0) : clampTo(sliceBound(context, slice.start, 0));
  int64_t stop = slice.stop.is<NoneObject>() ? (down ? -1 : size) : clampTo(sliceBound(context, slice.stop, 0));
  run.count = int64_t(RangeObject{run.start, stop, run.step}.size());
  return run;
}

bool isWholeSlice(const SliceObject& slice) {
  return slice.start.is<NoneObject>() && slice.stop.is<NoneObject>() && slice.step.is<NoneObject>();
}

const Tensor* sliceAxis(Context& context, const Tensor& tensor, size_t position, const SliceObject& slice) {
  if (isWholeSlice(slice)) return &tensor;
  auto* result = context.heap.make<Tensor>(tensor);
  Tensor::Axis& axis = result->axes[tensor.order[position]];
  if (!axis.size) context.fail(diag::sliceOfNamedExtent, context.module.tensors[tensor.number].name);
  ItemRun run = resolveSlice(context, slice, *axis.size);
  axis.start += run.start * axis.step;
  axis.step *= run.step;
  axis.size = run.count;
  return result;
}

/// Splits an index into its parts: a tuple's items, or the index itself.
llvm::SmallVector<Object, 4> parts(Object index) {
  if (index.is<Sequence*>() && !index.as<Sequence*>()->isList)
    return {index.as<Sequence*>()->items.begin(), index.as<Sequence*>()->items.end()};
  return {index};
}

Object indexLazyArray(Context& context, const Array& array, llvm::ArrayRef<Object> indices);

Object indexTensor(Context& context, const Tensor& whole, Object index) {
  llvm::SmallVector<Object, 4> indices = parts(index);
  const Tensor* tensor = &whole;
  size_t position = 0, given = 0;
  for (Object part : indices) given += !part.is<EllipsisObject>() && !part.is<NoneObject>();
  const bool addsAxes = llvm::any_of(indices, [](Object part) { return part.is<NoneObject>(); });
  const Array* lazy = addsAxes ? lazyOf(context, &whole) : nullptr;
  if (given > whole.order.size())
    context.fail(diag::tooManyIndices, context.module.tensors[whole.number].name,
                 counted(whole.axes.size(), "dim", "dims"),
                 counted(given + whole.axes.size() - whole.order.size(), "index", "indices"),
                 fmt::format("it is declared `{}`: write `{}`, or declare the dim that is missing",
                             declarationText(context.module, whole.number), elementText(context.module, whole.number)));
  if (lazy) return indexLazyArray(context, *lazy, indices);
  for (Object part : indices) {
    if (part.is<EllipsisObject>()) {
      if (indices.size() - given > 1) context.fail(diag::badIndex, "a second `...`");
      position += whole.order.size() - given;
    } else if (part.is<const SliceObject*>()) {
      tensor = sliceAxis(context, *tensor, position++, *part.as<const SliceObject*>());
    } else {
      tensor = indexAxis(context, *tensor, position, part);
    }
  }
  return tensor;
}

/// Each part of the index takes an axis, keeps it (a slice), or adds one (None).
Object indexLazyArray(Context& context, const Array& array, llvm::ArrayRef<Object> indices) {
  size_t taken = 0;
  for (Object part : indices) taken += !part.is<NoneObject>() && !part.is<EllipsisObject>();
  llvm::SmallVector<int64_t, 4> shape;
  llvm::SmallVector<Object, 4> sources; // for each old axis: an index, or a range with the number of the new axis
  llvm::SmallVector<std::pair<int, ItemRun>, 4> kept;
  size_t axis = 0;
  auto keep = [&](ItemRun run, int64_t extent) {
    sources.emplace_back(NoneObject{});
    kept.emplace_back(int(shape.size()), run);
    shape.push_back(extent);
    ++axis;
  };
  for (Object part : indices) {
    if (part.is<NoneObject>()) {
      shape.push_back(1);
    } else if (part.is<EllipsisObject>()) {
      for (size_t left = array.shape.size() - taken; left > 0; --left) keep({0, 1, 0}, array.shape[axis]);
    } else if (part.is<const SliceObject*>()) {
      const SliceObject& slice = *part.as<const SliceObject*>();
      if (isWholeSlice(slice)) {
        keep({0, 1, 0}, array.shape[axis]);
        continue;
      }
      if (array.shape[axis] < 0) context.fail(diag::sliceOfNamedExtent, context.describe(&array));
      ItemRun run = resolveSlice(context, slice, array.shape[axis]);
      if (run.count == 0) return makeArray(context, {0}, {});
      keep(run, run.count);
    } else {
      sources.emplace_back(axisIndex(context, part, launchExtent(array.shape[axis])));
      kept.emplace_back(-1, ItemRun{});
      ++axis;
    }
  }
  while (axis < array.shape.size()) keep({0, 1, 0}, array.shape[axis]);
  Object result = viewLazy(context, array, shape, [&](llvm::ArrayRef<Object> at) {
    llvm::SmallVector<Object, 4> from;
    for (size_t i = 0; i < sources.size(); ++i) {
      auto [number, run] = kept[i];
      Object index = number < 0 ? sources[i] : at[size_t(number)];
      if (run.step != 1) index = binaryScalars(context, BinaryOp::Mul, index, run.step);
      if (run.start != 0) index = binaryScalars(context, BinaryOp::Add, index, run.start);
      from.push_back(index);
    }
    return from;
  });
  return shape.empty() ? *result.as<const Array*>()->element : result;
}

Object indexArray(Context& context, const Array& array, Object index) {
  llvm::SmallVector<Object, 4> indices = parts(index);
  size_t given = 0;
  for (Object part : indices) given += !part.is<NoneObject>() && !part.is<EllipsisObject>();
  if (given > array.shape.size())
    context.fail(diag::tooManyIndices, "this array", counted(array.shape.size(), "dim", "dims"),
                 counted(given, "index", "indices"), "give an index for each dim");
  if (array.element) return indexLazyArray(context, array, indices);
  if (indices.size() > array.shape.size() || given < indices.size())
    return indexLazyArray(context, *lazyTable(context, array), indices);
  Object result = &array;
  for (Object part : indices) {
    const Array& rows = *result.as<const Array*>();
    if (!part.is<const SliceObject*>() || indices.size() > 1) {
      result = rowOf(context, rows, part);
      continue;
    }
    const ItemRun run = resolveSlice(context, *part.as<const SliceObject*>(), rows.shape[0]);
    const size_t inner = rows.shape[0] ? rows.items.size() / size_t(rows.shape[0]) : 0;
    std::vector<Object> items;
    for (int64_t i = 0; i < run.count; ++i)
      for (size_t j = 0; j < inner; ++j) items.push_back(rows.items[size_t(run.start + i * run.step) * inner + j]);
    llvm::SmallVector<int64_t, 2> shape(rows.shape.begin(), rows.shape.end());
    shape[0] = run.count;
    result = makeArray(context, shape, std::move(items));
  }
  return result;
}

Object indexSequence(Context& context, Object base, Object index) {
  const Sequence& sequence = *base.as<Sequence*>();
  index = decay(context, index);
  if (index.is<const SliceObject*>()) {
    ItemRun run = resolveSlice(context, *index.as<const SliceObject*>(), int64_t(sequence.items.size()));
    std::vector<Object> items;
    for (int64_t i = 0; i < run.count; ++i) items.push_back(sequence.items[size_t(run.start + i * run.step)]);
    return context.makeSequence(sequence.isList, std::move(items));
  }
  if (index.isTraced()) context.fail(diag::tracedListIndex, context.describe(base));
  if (!index.is<int64_t>()) context.fail(diag::badIndex, context.describe(index));
  return sequence.items[wrapKnownIndex(context, index.as<int64_t>(), sequence.items.size())];
}

} // namespace

void setItem(Context& context, Dict& dict, Object key, Object value) {
  if (Object* item = findItem(context, dict, key)) {
    *item = value;
    return;
  }
  if (dict.items.size() >= kMaxItems) context.fail(diag::tooManyItems, Count(dict.items.size() + 1), Count(kMaxItems));
  dict.items.emplace_back(key, value);
}

void deleteSubscript(Context& context, Object base, Object index) {
  if (base.is<Dict*>()) {
    auto& items = base.as<Dict*>()->items;
    const Object* item = findItem(context, *base.as<Dict*>(), index);
    if (!item) context.fail(diag::noItem);
    llvm::erase_if(items, [&](auto& pair) { return &pair.second == item; });
    return;
  }
  if (!base.is<Sequence*>() || !base.as<Sequence*>()->isList) context.fail(diag::notAssignable, context.describe(base));
  auto& items = base.as<Sequence*>()->items;
  if (!index.is<int64_t>()) context.fail(diag::badIndex, context.describe(index));
  items.erase(items.begin() + int64_t(wrapKnownIndex(context, index.as<int64_t>(), items.size())));
}

Object subscript(Context& context, Object base, Object index) {
  if (base.is<Dict*>()) {
    Object* item = findItem(context, *base.as<Dict*>(), decay(context, index));
    if (!item) context.fail(diag::noItem);
    return *item;
  }
  if (base.is<const Tensor*>()) return indexTensor(context, *base.as<const Tensor*>(), index);
  if (base.is<const Array*>()) return indexArray(context, *base.as<const Array*>(), index);
  if (base.is<Sequence*>()) return indexSequence(context, base, index);
  if (base.is<const RangeObject*>() && index.is<int64_t>()) {
    const RangeObject& range = *base.as<const RangeObject*>();
    size_t size = size_t(std::min<uint64_t>(range.size(), INT64_MAX));
    return range.at(wrapKnownIndex(context, index.as<int64_t>(), size));
  }
  // A number is a 0-d tensor: score[()] and score[...] are the score itself.
  bool isEmpty = index.is<EllipsisObject>() || (index.is<Sequence*>() && index.as<Sequence*>()->items.empty());
  if (base.isNumber() && isEmpty) return base;
  context.fail(diag::notIndexable, context.describe(base), indexRepair(context, base));
}

void assignSubscript(Context& context, Object base, Object index, Object value) {
  if (base.isArrayLike()) context.fail(diag::readOnly, context.describe(base));
  if (base.is<Dict*>()) return setItem(context, *base.as<Dict*>(), index, value);
  if (!base.is<Sequence*>() || !base.as<Sequence*>()->isList) context.fail(diag::notAssignable, context.describe(base));
  auto& items = base.as<Sequence*>()->items;
  if (!index.is<int64_t>()) context.fail(diag::badIndex, context.describe(index));
  items[wrapKnownIndex(context, index.as<int64_t>(), items.size())] = value;
}

} // namespace attnc::dsl
