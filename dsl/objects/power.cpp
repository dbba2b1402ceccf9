// In: base and exponent, at least one traced. Out: products for a small known integer exponent, square roots, exp2 for
// powers of two, repeated squaring for ints, and Op::Pow for the rest.
#include "dsl/objects/power.h"

#include "dsl/ir_names.h"
#include "dsl/objects/known_numbers.h"
#include "dsl/objects/scalars.h"

#include <cmath>
#include <cstdlib>

namespace attnc::dsl {

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
  const auto number = [&](int64_t value) {
    return Object(context.module.constInt(type.type, wrapped(value, type.ints)), type.ints);
  };
  const auto is = [&](Op op, Object a, Object b) {
    return Object(context.make(op, Type::Bool, {a.as<ir::Value>(), b.as<ir::Value>()}));
  };
  const Object e(lift(context, exponent, type), type.ints), zero = number(0),
                                                            first(lift(context, base, type), type.ints);
  const auto hasBit = [&](int bit) {
    const ir::Value mask = number(int64_t(1) << bit).as<ir::Value>();
    return is(Op::Ne, context.make(Op::And, type.type, {e.as<ir::Value>(), mask}), zero);
  };
  Object result = number(1), square = first;
  bool isKnown = base.isKnownNumber();
  const int64_t start = isKnown ? wrapped(toInt(context, base), type.ints) : 0;
  int64_t known = start;
  const analysis::Range range = context.range(e.as<ir::Value>());
  for (int bit = 0; bit < 63 && (bit == 0 || range.hi >> bit > 0); ++bit) {
    if (isKnown && known == 1) break;
    if (isKnown && known == 0) { // this and all higher bits multiply by 0
      result = select(context, is(Op::Lt, e, number(int64_t(1) << bit)), result, zero);
      break;
    }
    result = select(context, hasBit(bit), arith(context, Op::Mul, result, square), result);
    if (isKnown)
      square = known = wrapped(int64_t(uint64_t(known) * uint64_t(known)), type.ints);
    else if (range.hi >> (bit + 1) > 0)
      square = arith(context, Op::Mul, square, square);
  }
  if (context.isNonNegative(e.as<ir::Value>()) && range.lo > INT32_MIN) return result;
  Object inverse = zero; // those of 1 and -1 are ints
  if (!isKnown || std::abs(start) == 1) {
    inverse = select(context, is(Op::Eq, first, number(1)), number(1), zero);
    inverse = select(context, is(Op::Eq, first, number(-1)), select(context, hasBit(0), first, number(1)), inverse);
  }
  return select(context, is(Op::Lt, e, zero), inverse, result);
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
