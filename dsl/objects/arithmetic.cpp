// In: operators and values of any kind. Out: values; if an operand is traced, IR in the operands' common type.
// Not: simplification. `x * 1` stays until the passes.
#include "dsl/objects/arithmetic.h"

#include "dsl/objects/arrays.h"
#include "dsl/objects/indexing.h"
#include "dsl/objects/known_numbers.h"
#include "dsl/objects/power.h"

#include <cmath>

namespace attnc::dsl {

using ir::Op;
using ir::Type;

namespace {

bool fits32(int64_t value) { return value == int32_t(value); }

bool isBool(Context& context, Object value) {
  return value.is<bool>() || (value.isTraced() && context.type(value.as<ir::Value>()) == Type::Bool);
}

[[noreturn]] void badOperands(Context& context, const char* op, Object left, Object right) {
  context.fail(diag::badOperands, op, context.describe(left), context.describe(right));
}

} // namespace

// Scalars -----------------------------------------------------------------------------------------------------------

Type promote(Context& context, llvm::ArrayRef<Object> scalars, bool arithmetic) {
  Type result = arithmetic ? Type::I32 : Type::Bool;
  bool wide = false;
  for (Object value : scalars) {
    if (value.isTraced())
      result = std::max(result, context.type(value.as<ir::Value>()));
    else if (value.is<double>())
      result = Type::F32;
    else if (value.is<int64_t>())
      result = std::max(result, Type::I32);
    if (value.is<int64_t>() && !fits32(value.as<int64_t>())) wide = true;
  }
  return wide && result == Type::I32 ? Type::I64 : result;
}

ir::Value lift(Context& context, Object scalar, Type type) {
  if (scalar.isTraced()) {
    ir::Value value = scalar.as<ir::Value>();
    return context.type(value) == type ? value : context.make(Op::Cast, type, {value});
  }
  context.charge(1);
  Object known = cast(context, scalar, type);
  switch (type) {
  case Type::Bool: return context.module.constBool(known.as<bool>());
  case Type::I32:
  case Type::I64: return context.module.constInt(type, known.as<int64_t>());
  case Type::F32: return context.module.constF32(float(known.as<double>()));
  }
  return {};
}

Object cast(Context& context, Object scalar, Type type) {
  if (scalar.isTraced()) return lift(context, scalar, type);
  switch (type) {
  case Type::Bool: return toDouble(scalar) != 0;
  case Type::F32: return toDouble(scalar);
  case Type::I32:
    if (!fits32(toInt(context, scalar))) context.fail(diag::intOverflow);
    return toInt(context, scalar);
  case Type::I64: return toInt(context, scalar);
  }
  return scalar;
}

ir::Value stopGradient(Context& context, ir::Value value) {
  return context.type(value) == Type::F32 ? context.make(Op::StopGradient, Type::F32, {value}) : value;
}

Object arith(Context& context, Op op, Object left, Object right) {
  Type type = promote(context, {left, right}, /*arithmetic=*/true);
  return context.make(op, type, {lift(context, left, type), lift(context, right, type)});
}

Object minMax(Context& context, bool isMin, Object left, Object right) {
  if (left.isKnownNumber() && right.isKnownNumber()) {
    if (std::isnan(toDouble(left))) return left;
    if (std::isnan(toDouble(right))) return right;
    return knownCompare(isMin ? CompareOp::Le : CompareOp::Ge, left, right) ? left : right;
  }
  if (isBool(context, left) && isBool(context, right))
    return binary(context, isMin ? BinaryOp::And : BinaryOp::Or, left, right);
  return arith(context, isMin ? Op::Min : Op::Max, left, right);
}

Object select(Context& context, Object condition, Object yes, Object no) {
  Type type = promote(context, {yes, no}, /*arithmetic=*/false);
  if (condition.is<bool>()) return cast(context, condition.as<bool>() ? yes : no, type);
  return context.make(Op::Select, type, {condition.as<ir::Value>(), lift(context, yes, type), lift(context, no, type)});
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

// Binary operators --------------------------------------------------------------------------------------------------

namespace {

Object shift(Context& context, BinaryOp op, Object left, Object right) {
  Type type = promote(context, {left, right}, /*arithmetic=*/true);
  if (type == Type::F32) badOperands(context, spelling(op), left, right);
  bool isLeft = op == BinaryOp::Shl;
  int64_t width = type == Type::I32 ? 32 : 64;
  ir::Value value = lift(context, left, type), zero = context.module.constInt(type, 0);
  ir::Value last = context.module.constInt(type, width - 1);
  if (right.isKnownNumber()) {
    int64_t count = toInt(context, right);
    if (count < 0) context.fail(diag::negativeShift);
    if (count >= width && isLeft) return zero;
    ir::Value amount = context.module.constInt(type, std::min(count, width - 1));
    return context.make(isLeft ? Op::Shl : Op::Shr, type, {value, amount});
  }
  // The IR takes the count modulo the width. In torch, a large or negative count shifts all bits out.
  ir::Value count = lift(context, right, type);
  const bool isPositive = context.isNonNegative(count);
  if (!isLeft && isPositive) return context.make(Op::Shr, type, {value, context.make(Op::Min, type, {count, last})});
  ir::Value inside = context.make(Op::Le, Type::Bool, {count, last});
  if (!isPositive)
    inside = context.make(Op::And, Type::Bool, {context.make(Op::Le, Type::Bool, {zero, count}), inside});
  if (isLeft) return context.make(Op::Select, type, {inside, context.make(Op::Shl, type, {value, count}), zero});
  return context.make(Op::Shr, type, {value, context.make(Op::Select, type, {inside, count, last})});
}

Object bits(Context& context, BinaryOp op, Object left, Object right) {
  Type type = promote(context, {left, right}, /*arithmetic=*/false);
  if (type == Type::F32) badOperands(context, spelling(op), left, right);
  Op operation = op == BinaryOp::And ? Op::And : op == BinaryOp::Or ? Op::Or : Op::Xor;
  return context.make(operation, type, {lift(context, left, type), lift(context, right, type)});
}

Object quotient(Context& context, Op op, Object left, Object right) {
  bool isZero = right.isKnownNumber() && toDouble(right) == 0;
  if (isZero && promote(context, {left, right}, true) != Type::F32) context.fail(diag::divisionByZero);
  return arith(context, op, left, right);
}

/// Two scalars, at least one of them traced.
Object tracedBinary(Context& context, BinaryOp op, Object left, Object right) {
  bool bools = isBool(context, left) && isBool(context, right);
  switch (op) {
  case BinaryOp::Add:
    if (bools) context.fail(diag::sumOfBools);
    return arith(context, Op::Add, left, right);
  case BinaryOp::Sub: return arith(context, Op::Sub, left, right);
  case BinaryOp::Mul: return bools ? bits(context, BinaryOp::And, left, right) : arith(context, Op::Mul, left, right);
  case BinaryOp::Div:
    return context.make(Op::Div, Type::F32, {lift(context, left, Type::F32), lift(context, right, Type::F32)});
  case BinaryOp::FloorDiv: return quotient(context, Op::FloorDiv, left, right);
  case BinaryOp::Mod: return quotient(context, Op::Mod, left, right);
  case BinaryOp::Pow: return power(context, left, right);
  case BinaryOp::Shl:
  case BinaryOp::Shr: return shift(context, op, left, right);
  case BinaryOp::And:
  case BinaryOp::Or:
  case BinaryOp::Xor: return bits(context, op, left, right);
  case BinaryOp::MatMul: break;
  }
  badOperands(context, spelling(op), left, right);
}

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
  badOperands(context, spelling(op), left, right);
}

Object dot(Context& context, Object left, Object right) {
  Object products = binary(context, BinaryOp::Mul, left, right);
  if (products.as<const Array*>()->shape.size() != 1) badOperands(context, "@", left, right);
  return total(context, products, std::nullopt);
}

} // namespace

Object binary(Context& context, BinaryOp op, Object left, Object right) {
  left = decay(context, left);
  right = decay(context, right);
  if (left.isKnownNumber() && right.isKnownNumber()) return knownBinary(context, op, left, right);
  if (left.isNumber() && right.isNumber()) return tracedBinary(context, op, left, right);
  bool arrays =
      (left.isArrayLike() && (right.isArrayLike() || right.isNumber())) || (right.isArrayLike() && left.isNumber());
  if (!arrays) return sequenceBinary(context, op, left, right);
  if (op == BinaryOp::MatMul) {
    if (!left.isArrayLike() || !right.isArrayLike()) badOperands(context, "@", left, right);
    return dot(context, left, right);
  }
  return broadcast(context, {left, right},
                   [&](llvm::ArrayRef<Object> items) { return binary(context, op, items[0], items[1]); });
}

// Unary operators and truth -----------------------------------------------------------------------------------------

Object asBool(Context& context, Object operand) { return cast(context, operand, Type::Bool); }

Object logicalNot(Context& context, Object operand) {
  if (operand.isKnownNumber()) return toDouble(operand) == 0;
  return context.make(Op::Not, Type::Bool, {lift(context, operand, Type::Bool)});
}

namespace {

/// Returns `__bool__`, else whether `__len__` is not 0, else true.
bool truthOfInstance(Context& context, Instance& instance) {
  std::optional<Object> said = context.callMethod(instance, "__bool__");
  if (!said) {
    said = length(context, instance);
    return !said || said->as<int64_t>() != 0;
  }
  if (said->isTraced()) context.fail(diag::tracedCondition, context.describe(*said));
  if (!said->is<bool>()) context.fail(diag::badArgument, "bool", "a bool of `__bool__`", context.describe(*said));
  return said->as<bool>();
}

} // namespace

std::optional<Object> length(Context& context, Instance& instance) {
  std::optional<Object> said = context.callMethod(instance, "__len__");
  if (said && (!said->is<int64_t>() || said->as<int64_t>() < 0))
    context.fail(diag::badArgument, "len", "an int known before launch of `__len__`", context.describe(*said));
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
  if (value.isTraced() || value.isArrayLike()) context.fail(diag::tracedCondition, context.describe(value));
  return true;
}

Object unary(Context& context, UnaryOp op, Object operand) {
  operand = decay(context, operand);
  if (op == UnaryOp::Not) return operand.isTraced() ? logicalNot(context, operand) : Object(!truth(context, operand));
  if (operand.isArrayLike())
    return broadcast(context, {operand}, [&](llvm::ArrayRef<Object> items) { return unary(context, op, items[0]); });
  if (operand.isKnownNumber()) return knownUnary(context, op, operand);
  if (!operand.isTraced()) context.fail(diag::badOperand, spelling(op), context.describe(operand));
  ir::Value value = operand.as<ir::Value>();
  Type type = context.type(value);
  if (op == UnaryOp::Invert) {
    if (type == Type::F32) context.fail(diag::badOperand, spelling(op), context.describe(operand));
    return context.make(Op::Not, type, {value});
  }
  if (type == Type::Bool) type = Type::I32;
  value = lift(context, operand, type);
  return op == UnaryOp::Neg ? context.make(Op::Neg, type, {value}) : value;
}

} // namespace attnc::dsl
