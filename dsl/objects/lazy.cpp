#include "dsl/objects/lazy.h"

#include "dsl/ir_names.h"
#include "dsl/objects/scalar_operators.h"
#include "dsl/objects/scalars.h"
#include "dsl/objects/tables.h"
#include "dsl/objects/tensors.h"

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/STLExtras.h>

#include <algorithm>

namespace attnc::dsl {

using ir::Loop;

namespace {

/// Sums of fewer elements are unrolled.
constexpr int64_t kMinRounds = 16;
/// Limit of a sum's rounds times those of the sums inside it. A larger sum is unrolled, so that each inner sum is
/// computed once.
constexpr int64_t kMaxNestedRounds = 1 << 16;

struct Replacement {
  Loop loop;
  ir::Value by;
};

/// Returns the open nodes that an element needs, in order.
std::vector<ir::Value> openNodes(Context& context, ir::Value element) {
  llvm::DenseSet<uint32_t> seen;
  llvm::SmallVector<ir::Value, 16> left = {element};
  std::vector<ir::Value> nodes;
  while (!left.empty()) {
    ir::Value value = left.pop_back_val();
    if (context.openLoops(value) == 0 || !seen.insert(value.id).second) continue;
    nodes.push_back(value);
    const ir::Node& node = context.module[value];
    left.append(node.operands.begin(), node.operands.end());
  }
  std::sort(nodes.begin(), nodes.end(), [](ir::Value a, ir::Value b) { return a.id < b.id; });
  return nodes;
}

/// Replaces the iters of some axes in an element by values. Sums inside it get new loops, so that they do not capture
/// an iter of these values.
Object replaced(Context& context, Object element, llvm::ArrayRef<Replacement> replacements) {
  if (!element.isTraced()) return element;
  ir::LoopSet gone = 0;
  for (const Replacement& replacement : replacements) gone |= only(replacement.loop);
  llvm::DenseMap<uint32_t, ir::Value> now;
  for (ir::Value value : openNodes(context, element.as<ir::Value>())) {
    if (!(context.openLoops(value) & gone)) continue;
    const ir::Node node = context.module[value];
    if (node.op == Op::Iter) {
      for (const Replacement& replacement : replacements)
        if (Loop::of(node).id == replacement.loop.id) now[value.id] = replacement.by;
      continue;
    }
    llvm::SmallVector<ir::Value, 3> operands;
    for (ir::Value operand : node.operands) {
      auto found = now.find(operand.id);
      operands.push_back(found == now.end() ? operand : found->second);
    }
    now[value.id] = context.remake(value, operands);
  }
  auto found = now.find(element.as<ir::Value>().id);
  return found == now.end() ? element : Object(found->second, element.ints);
}

/// Sums over an axis, which must have more than one element.
std::optional<Object> sumOver(Context& context, Object element, Loop axis) {
  if (!element.isTraced()) return binaryScalars(context, BinaryOp::Mul, element, axis.count);
  if (!isFloat(context, element)) element = cast(context, element, Type::I64); // counted
  Loop loop{0, axis.count};
  llvm::DenseMap<uint32_t, int64_t> rounds; // rounds of the sums inside, by node
  int64_t most = 1;
  for (ir::Value value : openNodes(context, element.as<ir::Value>())) {
    const ir::Node& node = context.module[value];
    if (node.op != Op::Sum) continue;
    int64_t inner = 1;
    for (ir::Value below : openNodes(context, node.operands[0]))
      if (auto found = rounds.find(below.id); found != rounds.end()) inner = std::max(inner, found->second);
    most = std::max(most, rounds[value.id] = inner * Loop::of(node).count);
    loop.id = std::max(loop.id, Loop::of(node).id + 1);
  }
  if (loop.id >= ir::kMaxLoops || most * loop.count > kMaxNestedRounds) return std::nullopt;
  ir::Value term = replaced(context, element, Replacement{axis, context.module.iter(loop)}).as<ir::Value>();
  const analysis::Range& range = context.range(term);
  if (context.type(term) == Type::I32 && !range.within(INT32_MIN / loop.count, INT32_MAX / loop.count))
    term = context.make(Op::Cast, Type::I64, {term});
  return context.make(Op::Sum, context.type(term), {term}, loop.attr());
}

/// Returns the array without an axis that its element does not depend on. The axes before it move one place towards the
/// last.
Object withoutAxis(Context& context, llvm::ArrayRef<int64_t> shape, size_t axis, Object element) {
  llvm::SmallVector<Replacement, 4> moves;
  for (size_t i = 0; i < axis; ++i) {
    const size_t fromLast = shape.size() - 1 - i;
    moves.push_back({axisLoop(fromLast, shape[i]), context.module.iter(axisLoop(fromLast - 1, shape[i]))});
  }
  element = replaced(context, element, moves);
  llvm::SmallVector<int64_t, 2> left(shape.begin(), shape.end());
  left.erase(left.begin() + int64_t(axis));
  return left.empty() ? element : Object(makeLazy(context, left, element));
}

void addItems(Context& context, llvm::ArrayRef<int64_t> shape, Object element, std::vector<Object>& items) {
  if (shape.empty()) {
    items.push_back(element);
    return;
  }
  const Loop loop = axisLoop(shape.size() - 1, shape[0]);
  for (int64_t i = 0; i < shape[0]; ++i)
    addItems(context, shape.drop_front(),
             replaced(context, element, Replacement{loop, context.module.constInt(Type::I32, i)}), items);
}

} // namespace

int64_t extentCode(Object extent) {
  return extent.is<int64_t>() ? extent.as<int64_t>() : -1 - int64_t(extent.as<ir::Value>().id);
}

Object launchExtent(int64_t code) {
  if (code >= 0) return code;
  return Object(ir::Value{uint32_t(-1 - code)}, Ints::Python);
}

/// All launch extents share one code for their count, so two axes that meet must have the same extent.
Loop axisLoop(size_t fromLast, int64_t extent) {
  return {unsigned(ir::kMaxLoops + fromLast), extent < 0 ? ir::kMaxRounds + 1 : extent};
}

const Array* makeLazy(Context& context, llvm::ArrayRef<int64_t> shape, Object element) {
  context.charge(1);
  return context.heap.make<Array>(llvm::SmallVector<int64_t, 2>(shape.begin(), shape.end()), std::vector<Object>{},
                                  element);
}

const Array* lazyOf(Context& context, Object arrayLike) {
  if (arrayLike.is<const Array*>()) {
    const Array* array = arrayLike.as<const Array*>();
    return array->element ? array : nullptr;
  }
  const Tensor* tensor = arrayLike.as<const Tensor*>();
  llvm::SmallVector<int64_t, 2> shape;
  for (unsigned axis : tensor->order) {
    std::optional<int64_t> size = tensor->axes[axis].size;
    if (size && (*size < 1 || *size > ir::kMaxRounds)) return nullptr;
    shape.push_back(size ? *size : extentCode(extentOf(context, tensor->number, axis)));
  }
  if (shape.empty()) return nullptr;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool isOne = shape[i] == 1;
    Object index = isOne ? Object(int64_t(0)) : Object(context.module.iter(axisLoop(shape.size() - 1 - i, shape[i])));
    tensor = indexAxis(context, *tensor, 0, index);
  }
  return makeLazy(context, shape, readElement(context, *tensor));
}

const Array* viewLazy(Context& context, const Array& array, llvm::ArrayRef<int64_t> shape,
                      llvm::function_ref<llvm::SmallVector<Object, 4>(llvm::ArrayRef<Object>)> source) {
  llvm::SmallVector<Object, 4> indices;
  for (size_t i = 0; i < shape.size(); ++i) {
    Object zero = int64_t(0);
    indices.push_back(shape[i] == 1 ? zero : Object(context.module.iter(axisLoop(shape.size() - 1 - i, shape[i]))));
  }
  llvm::SmallVector<Replacement, 4> moves;
  llvm::SmallVector<Object, 4> sources = source(indices);
  for (size_t i = 0; i < array.shape.size(); ++i)
    moves.push_back({axisLoop(array.shape.size() - 1 - i, array.shape[i]), lift(context, sources[i], Type::I32)});
  return makeLazy(context, shape, replaced(context, *array.element, moves));
}

Object elementFor(Context& context, const Array& array, llvm::ArrayRef<int64_t> shape) {
  llvm::SmallVector<Replacement, 4> moves;
  for (size_t fromLast = 0; fromLast < array.shape.size(); ++fromLast) {
    const int64_t own = array.shape[array.shape.size() - 1 - fromLast], common = shape[shape.size() - 1 - fromLast];
    const Loop from = axisLoop(fromLast, own), to = axisLoop(fromLast, common);
    if (own != 1 && from.count != to.count) moves.push_back({from, context.module.iter(to)});
  }
  return moves.empty() ? *array.element : replaced(context, *array.element, moves);
}

const Array* filled(Context& context, llvm::ArrayRef<int64_t> shape, Object element) {
  const Meeting type = promote(context, {element}, /*arithmetic=*/false);
  return makeLazy(context, shape,
                  Object(lift(context, element, type), type.ints == Ints::Python ? Ints::I64 : type.ints));
}

const Array* lazyTable(Context& context, const Array& table) {
  Object element = &table;
  for (size_t i = 0; i < table.shape.size(); ++i) {
    const int64_t extent = table.shape[i];
    Object index =
        extent == 1 ? Object(int64_t(0)) : Object(context.module.iter(axisLoop(table.shape.size() - 1 - i, extent)));
    element = rowOf(context, *element.as<const Array*>(), index);
  }
  return filled(context, table.shape, element);
}

void failUnindexed(Context& context, const Array& array) {
  if (array.element && array.element->isTraced())
    for (ir::Value value : openNodes(context, array.element->as<ir::Value>())) {
      const ir::Node node = context.module[value];
      if (node.op != Op::Load) continue;
      Tensor tensor = *wholeTensor(context, unsigned(node.attr)).as<const Tensor*>();
      tensor.order.clear();
      for (unsigned axis = 0; axis < node.operands.size(); ++axis)
        if (context.openLoops(node.operands[axis]) >> ir::kMaxLoops) tensor.order.push_back(axis);
      failUnindexed(context, tensor);
    }
  context.fail(diag::arrayResult, context.describe(&array));
}

std::vector<Object> itemsOf(Context& context, const Array& array) {
  std::vector<Object> items;
  addItems(context, array.shape, *array.element, items);
  return items;
}

std::optional<Object> sumLazy(Context& context, const Array& array, std::optional<size_t> axis) {
  int64_t count = 1;
  for (size_t i = 0; i < array.shape.size(); ++i)
    if ((!axis || i == *axis) && array.shape[i] < 0) failUnindexed(context, array);
  for (size_t i = 0; i < array.shape.size(); ++i)
    if (!axis || i == *axis) count = std::min<int64_t>(count * array.shape[i], ir::kMaxRounds);
  if (count > int64_t(kMaxItems)) context.fail(diag::tooManyItems, count, Count(kMaxItems));
  if (count < kMinRounds) return std::nullopt;
  Object result = &array;
  for (size_t left = array.shape.size(); left-- > 0;) { // from the last axis on
    if (axis && left != *axis) continue;
    const Array& now = *result.as<const Array*>();
    const Loop loop = axisLoop(now.shape.size() - 1 - left, now.shape[left]);
    std::optional<Object> total = loop.count > 1 ? sumOver(context, *now.element, loop) : *now.element;
    if (!total) return std::nullopt;
    result = withoutAxis(context, now.shape, left, *total);
  }
  return result;
}

std::optional<Object> foldLazy(Context& context, const Array& array, size_t axis,
                               llvm::function_ref<Object(llvm::ArrayRef<Object>)> fold) {
  if (array.shape[axis] < 0) failUnindexed(context, array);
  if (array.shape.size() == 1 || array.shape[axis] >= kMinRounds) return std::nullopt;
  const Loop loop = axisLoop(array.shape.size() - 1 - axis, array.shape[axis]);
  std::vector<Object> items;
  for (int64_t i = 0; i < loop.count; ++i)
    items.push_back(replaced(context, *array.element, Replacement{loop, context.module.constInt(Type::I32, i)}));
  return withoutAxis(context, array.shape, axis, fold(items));
}

ir::Module withoutElements(const ir::Module& module) {
  const std::vector<ir::LoopSet> open = ir::openLoops(module);
  const ir::LoopSet axes = ~ir::LoopSet(0) << ir::kMaxLoops;
  if (llvm::none_of(open, [&](ir::LoopSet loops) { return loops & axes; })) return module;
  ir::Module out = module.declarations();
  std::vector<ir::Value> now(module.size());
  for (uint32_t id = 0; id < module.size(); ++id) {
    if (open[id] & axes) continue;
    ir::Node node = module[{id}];
    for (ir::Value& operand : node.operands) operand = now[operand.id];
    now[id] = out.make(node.op, node.type, node.operands, node.attr, node.line);
  }
  for (ir::Output output : module.outputs()) {
    output.value = now[output.value.id];
    out.setOutput(std::move(output));
  }
  return out;
}

} // namespace attnc::dsl
