// In: base and exponent, at least one traced. Out: products for a small known integer exponent, square roots, exp2 for
// powers of two, repeated squaring for ints, and Op::Pow for the rest.
#include "dsl/objects/power.h"

#include "dsl/objects/known_numbers.h"
#include "dsl/objects/scalars.h"

#include <cmath>

namespace attnc::dsl {

using ir::Op;
using ir::Type;

namespace {

/// base ** count by squaring, count >= 1.
ir::Value repeated(Context& context, ir::Value base, uint64_t count) {
  Type type = context.type(base);
  std::optional<ir::Value> result;
  for (ir::Value square = base;; square = context.make(Op::Mul, type, {square, square})) {
    if (count & 1) result = result ? context.make(Op::Mul, type, {*result, square}) : square;
    count >>= 1;
    if (!count) return *result;
  }
}

/// Raises a traced base to a known integer power.
Object wholePower(Context& context, Object base, int64_t exponent) {
  Type type = promote(context, {base}, /*arithmetic=*/true);
  if (exponent < 0) type = Type::F32;
  ir::Value one = lift(context, Object(int64_t(1)), type);
  if (exponent == 0) return one;
  uint64_t count = exponent < 0 ? 0 - uint64_t(exponent) : uint64_t(exponent);
  ir::Value result = repeated(context, lift(context, base, type), count);
  return exponent < 0 ? context.make(Op::Div, type, {one, result}) : result;
}

/// 2 ** e, 3 ** e, n ** e for a traced int e: one step for each bit of the exponent. The squares of a known base are
/// known.
Object intLadder(Context& context, Object base, ir::Value exponent) {
  Type type = promote(context, {base, exponent}, /*arithmetic=*/true);
  ir::Value e = lift(context, exponent, type);
  ir::Value zero = context.module.constInt(type, 0), result = context.module.constInt(type, 1),
            square = lift(context, base, type);
  bool isKnown = base.isKnownNumber();
  int64_t known = isKnown ? toInt(context, base) : 0;
  int64_t width = type == Type::I32 ? 31 : 63;
  for (int64_t bit = 0; bit < width; ++bit) {
    if (isKnown && known == 1) break;
    ir::Value power = context.module.constInt(type, int64_t(1) << bit);
    if (isKnown && known == 0) { // this and all higher bits multiply by 0
      ir::Value below = context.make(Op::Lt, Type::Bool, {e, power});
      result = context.make(Op::Select, type, {below, result, zero});
      break;
    }
    ir::Value isSet = context.make(Op::Ne, Type::Bool, {context.make(Op::And, type, {e, power}), zero});
    result = context.make(Op::Select, type, {isSet, context.make(Op::Mul, type, {result, square}), result});
    if (isKnown) {
      known = int64_t(uint64_t(known) * uint64_t(known));
      if (type == Type::I32) known = int32_t(known);
      square = context.module.constInt(type, known);
    } else if (bit + 1 < width) {
      square = context.make(Op::Mul, type, {square, square});
    }
  }
  if (context.isNonNegative(e)) return result;
  return context.make(Op::Select, type, {context.make(Op::Lt, Type::Bool, {e, zero}), zero, result});
}

} // namespace

Object power(Context& context, Object left, Object right) {
  constexpr double kMostProducts = 64;
  Type type = promote(context, {left, right}, /*arithmetic=*/true);
  if (right.isKnownNumber()) {
    double exponent = toDouble(right);
    bool isWhole = exponent == std::trunc(exponent) && std::abs(exponent) <= kMostProducts;
    if (isWhole && right.is<double>()) left = cast(context, left, Type::F32);
    if (isWhole || (!right.is<double>() && type != Type::F32)) return wholePower(context, left, toInt(context, right));
    if (exponent == 0.5) return context.make(Op::Sqrt, Type::F32, {lift(context, left, Type::F32)});
    if (exponent == -0.5) return context.make(Op::Rsqrt, Type::F32, {lift(context, left, Type::F32)});
  } else if (type != Type::F32) {
    return intLadder(context, left, right.as<ir::Value>());
  }
  ir::Value exponent = lift(context, right, Type::F32);
  if (left.isKnownNumber() && toDouble(left) == 2) return context.make(Op::Exp2, Type::F32, {exponent});
  return context.make(Op::Pow, Type::F32, {lift(context, left, Type::F32), exponent});
}

} // namespace attnc::dsl
