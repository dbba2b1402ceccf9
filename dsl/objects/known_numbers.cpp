// In: known numbers. Out: known numbers, by Python's rules.
// Not: integers beyond 64 bits. They are an error, unlike in Python.
#include "dsl/objects/known_numbers.h"

#include "dsl/objects/repairs.h"
#include "ir/semantics.h"

#include <cmath>

namespace attnc::dsl {

namespace {

int64_t asInt(Object number) { return number.is<bool>() ? number.as<bool>() : number.as<int64_t>(); }

int64_t power(Context& context, int64_t base, int64_t exponent) {
  int64_t result = 1;
  bool overflow = false;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) overflow |= __builtin_mul_overflow(result, base, &result);
    if (exponent > 1) overflow |= __builtin_mul_overflow(base, base, &base);
    if (overflow) context.fail(diag::intOverflow);
  }
  return result;
}

int64_t shift(Context& context, BinaryOp op, int64_t value, int64_t count) {
  if (count < 0) context.fail(diag::negativeShift);
  if (op == BinaryOp::Shr) return value >> std::min<int64_t>(count, 63);
  if (value == 0) return 0;
  if (count > 62 || (value << count) >> count != value) context.fail(diag::intOverflow);
  return value << count;
}

Object intBinary(Context& context, BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
  case BinaryOp::Add: overflow = __builtin_add_overflow(a, b, &result); break;
  case BinaryOp::Sub: overflow = __builtin_sub_overflow(a, b, &result); break;
  case BinaryOp::Mul: overflow = __builtin_mul_overflow(a, b, &result); break;
  case BinaryOp::Div:
    if (b == 0) context.fail(diag::divisionByZero);
    return double(a) / double(b);
  case BinaryOp::FloorDiv:
  case BinaryOp::Mod:
    if (b == 0) context.fail(diag::divisionByZero);
    overflow = op == BinaryOp::FloorDiv && b == -1 && a == INT64_MIN;
    result = op == BinaryOp::FloorDiv ? ir::semantics::floorDiv(a, b) : ir::semantics::floorMod(a, b);
    break;
  case BinaryOp::Pow:
    if (b < 0 && a == 0) context.fail(diag::divisionByZero);
    if (b < 0) return std::pow(double(a), double(b));
    result = power(context, a, b);
    break;
  case BinaryOp::Shl:
  case BinaryOp::Shr: result = shift(context, op, a, b); break;
  case BinaryOp::And: result = a & b; break;
  case BinaryOp::Or: result = a | b; break;
  case BinaryOp::Xor: result = a ^ b; break;
  case BinaryOp::MatMul: context.badOperands(spelling(op), a, b);
  }
  if (overflow) context.fail(diag::intOverflow);
  return result;
}

/// Python's remainder, which has the sign of the divisor.
double floatMod(double a, double b) {
  double remainder = std::fmod(a, b);
  if (remainder != 0) return (remainder < 0) != (b < 0) ? remainder + b : remainder;
  return std::copysign(0.0, b);
}

/// Computes it as CPython does, infinite operands included.
double floatFloorDivide(double a, double b) {
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (b < 0) != (remainder < 0)) quotient -= 1;
  return std::round(quotient);
}

Object floatBinary(Context& context, BinaryOp op, double a, double b) {
  bool divides = op == BinaryOp::Div || op == BinaryOp::FloorDiv || op == BinaryOp::Mod;
  if (divides && b == 0) context.fail(diag::divisionByZero);
  switch (op) {
  case BinaryOp::Add: return a + b;
  case BinaryOp::Sub: return a - b;
  case BinaryOp::Mul: return a * b;
  case BinaryOp::Div: return a / b;
  case BinaryOp::FloorDiv: return floatFloorDivide(a, b);
  case BinaryOp::Mod: return floatMod(a, b);
  case BinaryOp::Pow: {
    double result = std::pow(a, b);
    if (a == 0 && b < 0) context.fail(diag::divisionByZero);
    bool finite = std::isfinite(a) && std::isfinite(b);
    if (finite && !std::isfinite(result)) context.fail(diag::mathDomain, "**");
    return result;
  }
  case BinaryOp::MatMul:
  case BinaryOp::Shl:
  case BinaryOp::Shr:
  case BinaryOp::And:
  case BinaryOp::Or:
  case BinaryOp::Xor: break;
  }
  context.badOperands(spelling(op), a, b);
}

} // namespace

double toDouble(Object number) { return number.is<double>() ? number.as<double>() : double(asInt(number)); }

int64_t toInt(Context& context, Object number) {
  if (!number.is<double>()) return asInt(number);
  double value = std::trunc(number.as<double>());
  if (!(value >= -0x1p63 && value < 0x1p63)) context.fail(diag::intOverflow);
  return int64_t(value);
}

Object knownBinary(Context& context, BinaryOp op, Object left, Object right) {
  if (left.is<double>() || right.is<double>()) {
    bool bits =
        op == BinaryOp::And || op == BinaryOp::Or || op == BinaryOp::Xor || op == BinaryOp::Shl || op == BinaryOp::Shr;
    if (bits || op == BinaryOp::MatMul) context.badOperands(spelling(op), left, right);
    return floatBinary(context, op, toDouble(left), toDouble(right));
  }
  if (left.is<bool>() && right.is<bool>()) {
    bool a = left.as<bool>(), b = right.as<bool>();
    if (op == BinaryOp::And) return a && b;
    if (op == BinaryOp::Or) return a || b;
    if (op == BinaryOp::Xor) return a != b;
  }
  return intBinary(context, op, asInt(left), asInt(right));
}

Object knownUnary(Context& context, UnaryOp op, Object operand) {
  if (operand.is<double>()) {
    if (op == UnaryOp::Invert)
      context.fail(diag::badOperand, spelling(op), context.describe(operand), operandRepair(spelling(op), operand));
    return op == UnaryOp::Neg ? -operand.as<double>() : operand.as<double>();
  }
  if (op == UnaryOp::Invert) return operand.is<bool>() ? Object(!operand.as<bool>()) : Object(~operand.as<int64_t>());
  int64_t value = asInt(operand);
  if (op == UnaryOp::Pos) return value;
  int64_t result = 0;
  if (__builtin_sub_overflow(int64_t(0), value, &result)) context.fail(diag::intOverflow);
  return result;
}

namespace {

template <class T> bool compareAs(CompareOp op, T a, T b) {
  switch (op) {
  case CompareOp::Eq:
  case CompareOp::Is: return a == b;
  case CompareOp::Ne:
  case CompareOp::IsNot: return a != b;
  case CompareOp::Lt: return a < b;
  case CompareOp::Le: return a <= b;
  case CompareOp::Gt: return a > b;
  case CompareOp::Ge: return a >= b;
  case CompareOp::In:
  case CompareOp::NotIn: break;
  }
  return false;
}

} // namespace

bool knownCompare(CompareOp op, Object left, Object right) {
  if (!left.is<double>() && !right.is<double>()) return compareAs(op, asInt(left), asInt(right));
  // long double holds every int64 and every double, so the comparison is exact, as in Python.
  auto wide = [](Object number) {
    return number.is<double>() ? static_cast<long double>(number.as<double>())
                               : static_cast<long double>(asInt(number));
  };
  return compareAs(op, wide(left), wide(right));
}

} // namespace attnc::dsl
