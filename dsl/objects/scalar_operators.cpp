#include "dsl/objects/scalar_operators.h"

#include "dsl/objects/known_numbers.h"
#include "dsl/objects/power.h"
#include "dsl/objects/scalars.h"

#include <cmath>

namespace attnc::dsl {

using ir::Op;
using ir::Type;

namespace {

bool isBool(Context& context, Object value) {
  return value.is<bool>() || (value.isTraced() && context.type(value.as<ir::Value>()) == Type::Bool);
}

Object shift(Context& context, BinaryOp op, Object left, Object right) {
  Type type = promote(context, {left, right}, /*arithmetic=*/true);
  if (type == Type::F32) context.badOperands(spelling(op), left, right);
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
  if (type == Type::F32) context.badOperands(spelling(op), left, right);
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
  context.badOperands(spelling(op), left, right);
}

} // namespace

Object binaryScalars(Context& context, BinaryOp op, Object left, Object right) {
  if (left.isKnownNumber() && right.isKnownNumber()) return knownBinary(context, op, left, right);
  return tracedBinary(context, op, left, right);
}

Object compareScalars(Context& context, CompareOp op, Object left, Object right) {
  if (left.isKnownNumber() && right.isKnownNumber()) return knownCompare(op, left, right);
  const bool isOrdering = op != CompareOp::Eq && op != CompareOp::Ne;
  Type type = promote(context, {left, right}, /*arithmetic=*/isOrdering);
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
    return knownCompare(isMin ? CompareOp::Le : CompareOp::Ge, left, right) ? left : right;
  }
  if (isBool(context, left) && isBool(context, right))
    return binaryScalars(context, isMin ? BinaryOp::And : BinaryOp::Or, left, right);
  return arith(context, isMin ? Op::Min : Op::Max, left, right);
}

} // namespace attnc::dsl
