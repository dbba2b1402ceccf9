#include "dsl/objects/scalar_operators.h"

#include "dsl/ir_names.h"
#include "dsl/objects/known_numbers.h"
#include "dsl/objects/power.h"
#include "dsl/objects/scalars.h"

#include <cmath>

namespace attnc::dsl {

namespace {

Object shift(Context& context, BinaryOp op, Object left, Object right) {
  const bool isLeft = op == BinaryOp::Shl;
  Meeting type = promote(context, {left, right}, /*arithmetic=*/true);
  if (type.isFloat()) context.badOperands(spelling(op), left, right);
  if (isLeft && needs64(context, Op::Shl, type, {lift(context, left, type), lift(context, right, type)}))
    type.type = Type::I64;
  const auto typed = [&](ir::Value value) { return Object(value, type.ints); };
  const int64_t width = type.type == Type::I32 ? 32 : 64;
  ir::Value value = lift(context, left, type), zero = context.module.constInt(type.type, 0);
  ir::Value last = context.module.constInt(type.type, width - 1);
  if (right.isKnownNumber()) {
    int64_t count = toInt(context, right);
    if (count < 0) context.fail(diag::negativeShift);
    if (count >= width && isLeft) return typed(zero);
    const ir::Value amount = context.module.constInt(type.type, std::min(count, width - 1));
    return operate(context, isLeft ? Op::Shl : Op::Shr, type, {value, amount});
  }
  // The IR takes the count modulo the width. In torch, a large or negative count shifts all bits out.
  ir::Value count = lift(context, right, type);
  const bool isPositive = context.isNonNegative(count) && context.range(count).lo > INT32_MIN; // |INT32_MIN| is below 0
  if (!isLeft && isPositive)
    return typed(context.make(Op::Shr, type.type, {value, context.make(Op::Min, type.type, {count, last})}));
  ir::Value inside = context.make(Op::Le, Type::Bool, {count, last});
  if (!isPositive)
    inside = context.make(Op::And, Type::Bool, {context.make(Op::Le, Type::Bool, {zero, count}), inside});
  if (!isLeft)
    return typed(context.make(Op::Shr, type.type, {value, context.make(Op::Select, type.type, {inside, count, last})}));
  const Object shifted = operate(context, Op::Shl, type, {value, count});
  return select(context, inside, shifted, Object(zero, type.ints));
}

Object bits(Context& context, BinaryOp op, Object left, Object right) {
  const Meeting type = promote(context, {left, right}, /*arithmetic=*/false);
  if (type.isFloat()) context.badOperands(spelling(op), left, right);
  Op operation = op == BinaryOp::And ? Op::And : op == BinaryOp::Or ? Op::Or : Op::Xor;
  return operate(context, operation, type, {lift(context, left, type), lift(context, right, type)});
}

Object quotient(Context& context, Op op, Object left, Object right) {
  const Meeting type = promote(context, {left, right}, true);
  if (right.isKnownNumber() && !type.isFloat() && wrapped(toInt(context, right), type.ints) == 0)
    context.fail(diag::divisionByZero);
  return operate(context, op, type, {lift(context, left, type), lift(context, right, type)});
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
  context.badOperands(spelling(op), left, right);
}

/// Converts known ints to the dtype in which they meet, and returns it.
Ints meet(Context& context, Object& left, Object& right) {
  const Ints ints = promote(context, {left, right}, /*arithmetic=*/true).ints;
  for (Object* one : {&left, &right})
    if (one->is<int64_t>()) *one = wrapped(one->as<int64_t>(), ints);
  return ints;
}

} // namespace

Object binaryScalars(Context& context, BinaryOp op, Object left, Object right) {
  if (left.isKnownNumber() && right.isKnownNumber()) {
    const Ints ints = meet(context, left, right);
    Object result = knownBinary(context, op, left, right);
    if (result.is<int64_t>()) result = wrapped(result.as<int64_t>(), ints);
    result.ints = ints;
    return result;
  }
  return tracedBinary(context, op, left, right);
}

Object compareScalars(Context& context, CompareOp op, Object left, Object right) {
  if (left.isKnownNumber() && right.isKnownNumber()) {
    meet(context, left, right);
    return knownCompare(op, left, right);
  }
  const bool isOrdering = op != CompareOp::Eq && op != CompareOp::Ne;
  const Meeting type = promote(context, {left, right}, /*arithmetic=*/isOrdering);
  if (op == CompareOp::Gt || op == CompareOp::Ge) std::swap(left, right);
  Op operation = op == CompareOp::Eq                          ? Op::Eq
                 : op == CompareOp::Ne                        ? Op::Ne
                 : op == CompareOp::Lt || op == CompareOp::Gt ? Op::Lt
                                                              : Op::Le;
  return context.make(operation, Type::Bool, {lift(context, left, type), lift(context, right, type)});
}

Object logicalNot(Context& context, Object operand) {
  if (operand.isKnownNumber()) return toDouble(operand) == 0;
  return context.make(Op::Not, Type::Bool, {lift(context, operand, Type::Bool)});
}

Object minMax(Context& context, bool isMin, Object left, Object right) {
  if (left.isKnownNumber() && right.isKnownNumber()) {
    if (std::isnan(toDouble(left))) return left;
    if (std::isnan(toDouble(right))) return right;
    Object one = knownCompare(isMin ? CompareOp::Le : CompareOp::Ge, left, right) ? left : right;
    one.ints = promote(context, {left, right}, /*arithmetic=*/true).ints;
    return one;
  }
  if (isBool(context, left) && isBool(context, right))
    return binaryScalars(context, isMin ? BinaryOp::And : BinaryOp::Or, left, right);
  checkFits(context, left, right);
  checkFits(context, right, left);
  return arith(context, isMin ? Op::Min : Op::Max, left, right);
}

} // namespace attnc::dsl
