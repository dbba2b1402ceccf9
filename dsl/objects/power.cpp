// In: base and exponent, at least one traced. Out: products for a small known integer exponent, square roots, exp2 for
// powers of two, repeated squaring for ints, and Op::Pow for the rest.
#include "dsl/objects/power.h"

#include "dsl/objects/known_numbers.h"
#include "dsl/objects/scalar_operators.h"
#include "dsl/objects/scalars.h"

#include <cmath>
#include <cstdlib>

namespace attnc::dsl {

using ir::Op;
using ir::Type;

namespace {

/// base ** count by squaring, count >= 1.
Object repeated(Context& context, Object base, uint64_t count) {
  std::optional<Object> result;
  for (Object square = base;; square = arith(context, Op::Mul, square, square)) {
    if (count & 1) result = result ? arith(context, Op::Mul, *result, square) : square;
    count >>= 1;
    if (!count) return *result;
  }
}

/// Raises a traced base to a known integer power.
Object wholePower(Context& context, Object base, int64_t exponent) {
  Meeting type = promote(context, {base}, /*arithmetic=*/true);
  if (exponent < 0) type = Type::F32;
  const Object one(lift(context, Object(int64_t(1)), type), type.ints);
  if (exponent == 0) return one;
  uint64_t count = exponent < 0 ? 0 - uint64_t(exponent) : uint64_t(exponent);
  const Object result = repeated(context, Object(lift(context, base, type), type.ints), count);
  if (exponent > 0) return result;
  return context.make(Op::Div, type.type, {one.as<ir::Value>(), result.as<ir::Value>()});
}

/// 2 ** e, 3 ** e, n ** e for a traced int e: one step for each bit of the exponent. The squares of a known base are
/// known.
Object intLadder(Context& context, Object base, Object exponent) {
  const Meeting type = promote(context, {base, exponent}, /*arithmetic=*/true);
  const auto number = [&](int64_t value) { return Object(context.module.constInt(type.type, value), type.ints); };
  const Object e(lift(context, exponent, type), type.ints), zero = number(0), first(lift(context, base, type), type.ints);
  Object result = number(1), square = first;
  bool isKnown = base.isKnownNumber();
  int64_t known = isKnown ? wrapped(toInt(context, base), type.ints) : 0;
  const int64_t most = std::max<int64_t>(context.range(e.as<ir::Value>()).hi, 1);
  for (int64_t bit = 0; bit < 63 && most >> bit; ++bit) {
    if (isKnown && known == 1) break;
    const Object power = int64_t(1) << bit;
    if (isKnown && known == 0) { // this and all higher bits multiply by 0
      result = select(context, compareScalars(context, CompareOp::Lt, e, power), result, zero);
      break;
    }
    const Object isSet = compareScalars(context, CompareOp::Ne, binaryScalars(context, BinaryOp::And, e, power), zero);
    result = select(context, isSet, arith(context, Op::Mul, result, square), result);
    if (isKnown) {
      known = wrapped(int64_t(uint64_t(known) * uint64_t(known)), type.ints);
      square = Object(known);
    } else if (most >> (bit + 1)) {
      square = arith(context, Op::Mul, square, square);
    }
  }
  if (context.isNonNegative(e.as<ir::Value>()) && context.range(e.as<ir::Value>()).lo > INT32_MIN) return result;
  const Object isNegative = compareScalars(context, CompareOp::Lt, e, zero);
  // 1 and -1 have inverses, which are ints.
  Object inverse = zero;
  if (!isKnown || std::abs(wrapped(toInt(context, base), type.ints)) == 1) {
    const Object isOdd = compareScalars(context, CompareOp::Ne, binaryScalars(context, BinaryOp::And, e, int64_t(1)), zero);
    const auto is = [&](int64_t unit) { return compareScalars(context, CompareOp::Eq, first, unit); };
    inverse = select(context, is(1), number(1), zero);
    inverse = select(context, is(-1), select(context, isOdd, first, number(1)), inverse);
  }
  return select(context, isNegative, inverse, result);
}

} // namespace

Object power(Context& context, Object left, Object right) {
  constexpr double kMostProducts = 64;
  const Meeting type = promote(context, {left, right}, /*arithmetic=*/true);
  if (right.isKnownNumber()) {
    double exponent = toDouble(right);
    bool isWhole = exponent == std::trunc(exponent) && std::abs(exponent) <= kMostProducts;
    if (isWhole && right.is<double>()) left = cast(context, left, Type::F32);
    if (isWhole || (!right.is<double>() && !type.isFloat())) return wholePower(context, left, toInt(context, right));
    if (exponent == 0.5) return context.make(Op::Sqrt, Type::F32, {lift(context, left, Type::F32)});
    if (exponent == -0.5) return context.make(Op::Rsqrt, Type::F32, {lift(context, left, Type::F32)});
  } else if (!type.isFloat()) {
    return intLadder(context, left, right);
  }
  ir::Value exponent = lift(context, right, Type::F32);
  if (left.isKnownNumber() && toDouble(left) == 2) return context.make(Op::Exp2, Type::F32, {exponent});
  return context.make(Op::Pow, Type::F32, {lift(context, left, Type::F32), exponent});
}

} // namespace attnc::dsl
