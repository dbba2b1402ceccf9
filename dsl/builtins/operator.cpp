// torch's spellings of operators: torch.add, x.ge(y), torch.logical_and, ...
#include "dsl/builtins/builtins.h"
#include "dsl/ir_names.h"
#include "dsl/objects/arithmetic.h"
#include "dsl/objects/comparison.h"
#include "dsl/objects/known_numbers.h"
#include "dsl/objects/scalar_operators.h"
#include "dsl/objects/scalars.h"

#include <cmath>

namespace attnc::dsl {

namespace {

template <BinaryOp op> Object operate(Context& context, const Bound& bound) {
  return binary(context, op, argument(context, bound, 0), argument(context, bound, 1));
}

template <CompareOp op> Object comparison(Context& context, const Bound& bound) {
  return compare(context, op, argument(context, bound, 0), argument(context, bound, 1));
}

template <UnaryOp op> Object operateOne(Context& context, const Bound& bound) {
  return unary(context, op, argument(context, bound, 0));
}

/// input + alpha other, input - alpha other
template <BinaryOp op> Object scaled(Context& context, const Bound& bound) {
  Object other = argument(context, bound, 1);
  if (bound.has(2)) other = binary(context, BinaryOp::Mul, other, argument(context, bound, 2));
  return binary(context, op, argument(context, bound, 0), other);
}

template <BinaryOp op> Object logical(Context& context, const Bound& bound) {
  return binary(context, op, asBool(context, argument(context, bound, 0)),
                asBool(context, argument(context, bound, 1)));
}

Object logicalNotOf(Context& context, const Bound& bound) { return logicalNot(context, argument(context, bound, 0)); }

/// The remainder with the sign of the dividend. For ints: Python's remainder, minus the divisor if the signs differ.
Object fmod(Context& context, const Bound& bound) {
  Object a = argument(context, bound, 0), b = argument(context, bound, 1), zero = int64_t(0);
  if (promote(context, {a, b}, /*arithmetic=*/true).isFloat()) {
    if (!a.isKnownNumber() || !b.isKnownNumber()) return arith(context, Op::Fmod, a, b);
    if (toDouble(b) == 0) context.fail(diag::divisionByZero);
    if (std::isinf(toDouble(a))) context.fail(diag::mathDomain, "fmod");
    return std::fmod(toDouble(a), toDouble(b));
  }
  Object remainder = binary(context, BinaryOp::Mod, a, b);
  Object differ = compare(context, CompareOp::Ne, compare(context, CompareOp::Lt, a, zero),
                          compare(context, CompareOp::Lt, b, zero));
  Object isInexact = compare(context, CompareOp::Ne, remainder, zero);
  return select(context, binary(context, BinaryOp::And, differ, isInexact),
                binary(context, BinaryOp::Sub, remainder, b), remainder);
}

/// Divides toward zero. Ints give an int, floats a float.
Object truncatedDivision(Context& context, Object a, Object b) {
  if (promote(context, {a, b}, /*arithmetic=*/true).isFloat()) {
    Object quotient = binary(context, BinaryOp::Div, a, b);
    if (quotient.isKnownNumber()) return std::trunc(toDouble(quotient));
    return context.make(Op::Trunc, Type::F32, {quotient.as<ir::Value>()});
  }
  Object floor = binary(context, BinaryOp::FloorDiv, a, b), zero = int64_t(0);
  Object isBelow = compare(context, CompareOp::Lt, floor, zero);
  Object isInexact = compare(context, CompareOp::Ne, binary(context, BinaryOp::Mod, a, b), zero);
  return select(context, binary(context, BinaryOp::And, isBelow, isInexact),
                binary(context, BinaryOp::Add, floor, int64_t(1)), floor);
}

/// torch.div(input, other, rounding_mode=None | "floor" | "trunc")
Object div(Context& context, const Bound& bound) {
  Object a = argument(context, bound, 0), b = argument(context, bound, 1);
  if (!bound.has(2)) return binary(context, BinaryOp::Div, a, b);
  std::string mode = bound[2].is<const Str*>() ? bound[2].as<const Str*>()->text : "";
  if (mode == "floor") return binary(context, BinaryOp::FloorDiv, a, b);
  if (mode == "trunc") return truncatedDivision(context, a, b);
  context.fail(diag::badArgument, "div", "`rounding_mode` to be None, \"floor\" or \"trunc\"",
               context.describe(bound[2]));
}

Object square(Context& context, const Bound& bound) {
  Object x = argument(context, bound, 0);
  return binary(context, BinaryOp::Mul, x, x);
}

} // namespace

llvm::ArrayRef<Builtin> operatorBuiltins() {
  constexpr unsigned kTensor = kTorch | kMethod | kElementwise, kPair = kTensor | kArithmetic;
  static const Builtin rows[] = {
      {"add", kPair, "input, other, alpha=", scaled<BinaryOp::Add>},
      {"sub", kPair, "input, other, alpha=", scaled<BinaryOp::Sub>},
      {"subtract", kPair, "input, other, alpha=", scaled<BinaryOp::Sub>},
      {"mul", kPair, "input, other", operate<BinaryOp::Mul>},
      {"multiply", kPair, "input, other", operate<BinaryOp::Mul>},
      {"div", kTensor, "input, other, rounding_mode=", div},
      {"divide", kTensor, "input, other, rounding_mode=", div},
      {"true_divide", kTensor, "input, other", operate<BinaryOp::Div>},
      {"floor_divide", kPair, "input, other", operate<BinaryOp::FloorDiv>},
      {"remainder", kPair, "input, other", operate<BinaryOp::Mod>},
      {"fmod", kPair | kMath, "input, other", fmod},
      {"pow", kTensor | kPython | kMath, "input, exponent", operate<BinaryOp::Pow>},
      {"square", kTensor, "input", square},
      {"neg", kTensor, "input", operateOne<UnaryOp::Neg>},
      {"negative", kTensor, "input", operateOne<UnaryOp::Neg>},
      {"eq", kTensor, "input, other", comparison<CompareOp::Eq>},
      {"ne", kTensor, "input, other", comparison<CompareOp::Ne>},
      {"not_equal", kTensor, "input, other", comparison<CompareOp::Ne>},
      {"lt", kTensor, "input, other", comparison<CompareOp::Lt>},
      {"less", kTensor, "input, other", comparison<CompareOp::Lt>},
      {"le", kTensor, "input, other", comparison<CompareOp::Le>},
      {"less_equal", kTensor, "input, other", comparison<CompareOp::Le>},
      {"gt", kTensor, "input, other", comparison<CompareOp::Gt>},
      {"greater", kTensor, "input, other", comparison<CompareOp::Gt>},
      {"ge", kTensor, "input, other", comparison<CompareOp::Ge>},
      {"greater_equal", kTensor, "input, other", comparison<CompareOp::Ge>},
      {"logical_and", kTensor, "input, other", logical<BinaryOp::And>},
      {"logical_or", kTensor, "input, other", logical<BinaryOp::Or>},
      {"logical_xor", kTensor, "input, other", logical<BinaryOp::Xor>},
      {"logical_not", kTensor, "input", logicalNotOf},
      {"bitwise_and", kPair, "input, other", operate<BinaryOp::And>},
      {"bitwise_or", kPair, "input, other", operate<BinaryOp::Or>},
      {"bitwise_xor", kPair, "input, other", operate<BinaryOp::Xor>},
      {"bitwise_not", kTensor, "input", operateOne<UnaryOp::Invert>},
      {"bitwise_left_shift", kPair, "input, other", operate<BinaryOp::Shl>},
      {"bitwise_right_shift", kPair, "input, other", operate<BinaryOp::Shr>},
  };
  return rows;
}

} // namespace attnc::dsl
