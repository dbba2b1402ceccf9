#include "dsl/objects/tables.h"

#include "dsl/ir_names.h"
#include "dsl/objects/scalar_operators.h"
#include "dsl/objects/scalars.h"
#include "dsl/objects/tensors.h"

namespace attnc::dsl {

namespace {

/// Returns the captured tensor that a value is computed from, or null.
const ir::TensorCapture* captureBehind(Context& context, Object value) {
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

/// table[i] for a traced i: chains of selects, one for each element of a row. An index out of range takes the last row.
Object chooseRow(Context& context, const Array& array, Object index) {
  if (array.items.size() > kMaxTableLookup)
    if (const ir::TensorCapture* capture = captureBehind(context, array.items.front()))
      context.fail(diag::tableOfCapture, Count(array.items.size()), capture->name, Count(kMaxTableLookup));
  if (array.items.empty() || array.items.size() > kMaxTableLookup)
    context.fail(diag::tableTooLarge, Count(array.items.size()), Count(kMaxTableLookup));
  size_t rows = size_t(array.shape[0]), inner = array.items.size() / rows;
  Object at = axisIndex(context, index, array.shape[0]);
  std::vector<Object> items(array.items.end() - int64_t(inner), array.items.end());
  for (size_t row = rows - 1; row-- > 0;) {
    Object isHere = compareScalars(context, CompareOp::Eq, at, int64_t(row));
    for (size_t i = 0; i < inner; ++i) items[i] = select(context, isHere, array.items[row * inner + i], items[i]);
  }
  if (array.shape.size() == 1) return items[0];
  return makeArray(context, llvm::ArrayRef<int64_t>(array.shape).drop_front(), std::move(items));
}

} // namespace

const Array* makeArray(Context& context, llvm::ArrayRef<int64_t> shape, std::vector<Object> items) {
  context.charge(1 + items.size() / 4);
  return context.heap.make<Array>(llvm::SmallVector<int64_t, 2>(shape.begin(), shape.end()), std::move(items));
}

Object rowOf(Context& context, const Array& table, Object index) {
  index = decay(context, index);
  if (index.isTraced()) return chooseRow(context, table, index);
  if (!index.is<int64_t>()) context.fail(diag::badIndex, context.describe(index));
  const size_t row = wrapKnownIndex(context, index.as<int64_t>(), size_t(table.shape[0]));
  const size_t inner = table.items.size() / size_t(table.shape[0]);
  const auto first = table.items.begin() + int64_t(row * inner);
  if (table.shape.size() == 1) return *first;
  return makeArray(context, llvm::ArrayRef<int64_t>(table.shape).drop_front(), {first, first + int64_t(inner)});
}

} // namespace attnc::dsl
