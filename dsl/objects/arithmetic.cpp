// In: operators and values of any kind. Out: values; if an operand is traced, IR in the operands' common type.
// Not: simplification. `x * 1` stays until the passes.
#include "dsl/objects/arithmetic.h"

#include "dsl/ir_names.h"
#include "dsl/objects/arrays.h"
#include "dsl/objects/known_numbers.h"
#include "dsl/objects/repairs.h"
#include "dsl/objects/scalar_operators.h"
#include "dsl/objects/scalars.h"
#include "dsl/objects/tensors.h"

namespace attnc::dsl {

// Binary operators --------------------------------------------------------------------------------------------------

namespace {

Object sequenceBinary(Context& context, BinaryOp op, Object left, Object right) {
  if (op == BinaryOp::Mul && left.is<int64_t>()) std::swap(left, right);
  if (left.is<const Str*>() && right.is<const Str*>() && op == BinaryOp::Add)
    return context.makeStr(left.as<const Str*>()->text + right.as<const Str*>()->text);
  if (left.is<Sequence*>() && right.is<Sequence*>() && op == BinaryOp::Add &&
      left.as<Sequence*>()->isList == right.as<Sequence*>()->isList) {
    std::vector<Object> items = left.as<Sequence*>()->items;
    const auto& more = right.as<Sequence*>()->items;
    items.insert(items.end(), more.begin(), more.end());
    return context.makeSequence(left.as<Sequence*>()->isList, std::move(items));
  }
  if (left.is<Sequence*>() && right.is<int64_t>() && op == BinaryOp::Mul) {
    const auto& items = left.as<Sequence*>()->items;
    int64_t count = items.empty() ? 0 : std::max<int64_t>(right.as<int64_t>(), 0);
    if (count > int64_t(kMaxItems)) context.fail(diag::tooManyItems, count, Count(kMaxItems));
    std::vector<Object> result;
    for (int64_t i = 0; i < count && result.size() <= kMaxItems; ++i)
      result.insert(result.end(), items.begin(), items.end());
    return context.makeSequence(left.as<Sequence*>()->isList, std::move(result));
  }
  context.badOperands(spelling(op), left, right);
}

Object dot(Context& context, Object left, Object right) {
  Object products = binary(context, BinaryOp::Mul, left, right);
  if (products.as<const Array*>()->shape.size() != 1) context.badOperands("@", left, right);
  return totalAsItems(context, products, std::nullopt);
}

} // namespace

Object binary(Context& context, BinaryOp op, Object left, Object right) {
  left = decay(context, left);
  right = decay(context, right);
  if (left.isNumber() && right.isNumber()) return binaryScalars(context, op, left, right);
  bool arrays =
      (left.isArrayLike() && (right.isArrayLike() || right.isNumber())) || (right.isArrayLike() && left.isNumber());
  if (!arrays) return sequenceBinary(context, op, left, right);
  if (op == BinaryOp::MatMul) {
    if (!left.isArrayLike() || !right.isArrayLike()) context.badOperands("@", left, right);
    return dot(context, left, right);
  }
  // As in torch, an array of ints keeps its dtype if it meets one number.
  if (right.isNumber() && holdsInts(context, left)) right.ints = Ints::Python;
  if (left.isNumber() && holdsInts(context, right)) left.ints = Ints::Python;
  return broadcast(context, {left, right},
                   [&](llvm::ArrayRef<Object> items) { return binary(context, op, items[0], items[1]); });
}

// Unary operators and truth -----------------------------------------------------------------------------------------

namespace {

/// Returns `__bool__`, else whether `__len__` is not 0, else true.
bool truthOfInstance(Context& context, Instance& instance) {
  std::optional<Object> said = context.callMethod(instance, "__bool__");
  if (!said) {
    said = length(context, instance);
    return !said || said->as<int64_t>() != 0;
  }
  if (said->isTraced()) failCondition(context, *said);
  if (!said->is<bool>()) context.fail(diag::badArgument, "bool", "a bool of `__bool__`", context.describe(*said));
  return said->as<bool>();
}

} // namespace

std::optional<Object> length(Context& context, Instance& instance) {
  std::optional<Object> said = context.callMethod(instance, "__len__");
  if (said && (!said->is<int64_t>() || said->as<int64_t>() < 0))
    context.fail(diag::badArgument, "len", "an int of `__len__` that is known when the mod is compiled",
                 describeOrigin(context, *said));
  return said;
}

bool truth(Context& context, Object value) {
  value = decay(context, value);
  if (value.is<Instance*>()) return truthOfInstance(context, *value.as<Instance*>());
  if (value.isKnownNumber()) return toDouble(value) != 0;
  if (value.is<NoneObject>()) return false;
  if (value.is<const Str*>()) return !value.as<const Str*>()->text.empty();
  if (value.is<Sequence*>()) return !value.as<Sequence*>()->items.empty();
  if (value.is<Dict*>()) return !value.as<Dict*>()->items.empty();
  if (value.is<const RangeObject*>()) return value.as<const RangeObject*>()->size() != 0;
  if (value.isTraced() || value.isArrayLike()) failCondition(context, value);
  return true;
}

Object unary(Context& context, UnaryOp op, Object operand) {
  operand = decay(context, operand);
  if (op == UnaryOp::Not) return operand.isTraced() ? logicalNot(context, operand) : Object(!truth(context, operand));
  if (operand.isArrayLike())
    return broadcast(context, {operand}, [&](llvm::ArrayRef<Object> items) { return unary(context, op, items[0]); });
  if (operand.isKnownNumber()) {
    Object result = knownUnary(context, op, operand);
    if (result.is<int64_t>()) result = wrapped(result.as<int64_t>(), operand.ints);
    result.ints = operand.ints;
    return result;
  }
  if (!operand.isTraced())
    context.fail(diag::badOperand, spelling(op), context.describe(operand), operandRepair(spelling(op), operand));
  const Meeting type = promote(context, {operand}, /*arithmetic=*/op != UnaryOp::Invert);
  if (op == UnaryOp::Invert && type.isFloat())
    context.fail(diag::badOperand, spelling(op), context.describe(operand), operandRepair(spelling(op), operand));
  const ir::Value value = lift(context, operand, type);
  if (op == UnaryOp::Pos) return type.isFloat() ? Object(value) : Object(value, type.ints);
  return operate(context, op == UnaryOp::Neg ? Op::Neg : Op::Not, type, {value});
}

} // namespace attnc::dsl
