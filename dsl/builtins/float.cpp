// Functions of floats. Each becomes one operation of the IR or a short formula. Functions of known arguments are
// computed at once.
#include "dsl/builtins/builtins.h"
#include "dsl/ir_names.h"
#include "dsl/objects/arithmetic.h"
#include "dsl/objects/comparison.h"
#include "dsl/objects/known_numbers.h"
#include "dsl/objects/scalar_operators.h"
#include "dsl/objects/scalars.h"
#include "dsl/objects/tensors.h"
#include "ir/semantics.h"

#include <cmath>

namespace attnc::dsl {

namespace {

/// Computes a function of one known float.
double compute(Op op, double x) {
  return ir::semantics::apply<double>(op, Type::F32, Type::F32, {.real = x}, {.real = 0}).real;
}

Object apply(Context& context, Op op, Object x, const char* name) {
  if (x.isTraced()) return context.make(op, Type::F32, {lift(context, x, Type::F32)});
  double argument = toDouble(x), result = compute(op, argument);
  if (std::isfinite(argument) && !std::isfinite(result)) context.fail(diag::mathDomain, name);
  return result;
}

template <Op op> Object function(Context& context, const Bound& bound) {
  return apply(context, op, scalar(context, bound[0], bound.builtin->name), bound.builtin->name);
}

/// A function of two floats, such as atan2.
Object ofTwo(Context& context, Op op, Object x, Object y) {
  if (!x.isKnownNumber() || !y.isKnownNumber())
    return context.make(op, Type::F32, {lift(context, x, Type::F32), lift(context, y, Type::F32)});
  return ir::semantics::apply<double>(op, Type::F32, Type::F32, {.real = toDouble(x)}, {.real = toDouble(y)}).real;
}

template <Op op> Object functionOfTwo(Context& context, const Bound& bound) {
  return ofTwo(context, op, argument(context, bound, 0), argument(context, bound, 1));
}

/// math.hypot(*coordinates)
Object mathHypot(Context& context, const Bound& bound) {
  std::vector<Object> coordinates = bound.rest;
  coordinates.resize(std::max<size_t>(coordinates.size(), 2), 0.0);
  Object length = scalar(context, coordinates[0], "hypot");
  for (Object coordinate : llvm::ArrayRef<Object>(coordinates).drop_front())
    length = ofTwo(context, Op::Hypot, length, scalar(context, coordinate, "hypot"));
  return length;
}

/// torch.floor and similar: a float stays a float, an int is returned as it is.
template <Op op> Object rounding(Context& context, const Bound& bound) {
  Object x = scalar(context, bound[0], bound.builtin->name);
  if (isFloat(context, x)) return apply(context, op, x, bound.builtin->name);
  return isInt(context, x) ? x : cast(context, x, NumberType::I64);
}

/// math.floor and similar: the result is an int.
template <Op op> Object roundingToInt(Context& context, const Bound& bound) {
  Object x = rounding<op>(context, bound);
  if (x.isKnownNumber()) return toInt(context, x);
  return isFloat(context, x) ? Object(lift(context, x, Type::I32), Ints::Python) : x;
}

/// math.log(x[, base]).
Object mathLog(Context& context, const Bound& bound) {
  Object x = apply(context, Op::Log, scalar(context, bound[0], "log"), "log");
  if (!bound.has(1)) return x;
  return binary(context, BinaryOp::Div, x, apply(context, Op::Log, scalar(context, bound[1], "log"), "log"));
}

// Formulas ----------------------------------------------------------------------------------------------------------

/// Spells formulas over values of any kind.
struct Formula {
  Context& context;
  Object add(Object a, Object b) { return binary(context, BinaryOp::Add, a, b); }
  Object mul(Object a, Object b) { return binary(context, BinaryOp::Mul, a, b); }
  Object div(Object a, Object b) { return binary(context, BinaryOp::Div, a, b); }
  Object neg(Object a) { return unary(context, UnaryOp::Neg, a); }
  Object call(Op op, Object a) { return apply(context, op, a, "this function"); }
  Object gt(Object a, Object b) { return compare(context, CompareOp::Gt, a, b); }
};

Object floatArgument(Context& context, const Bound& bound) {
  return cast(context, scalar(context, bound[0], bound.builtin->name), Type::F32);
}

/// x sigmoid(x)
Object silu(Context& context, const Bound& bound) {
  Formula f{context};
  Object x = floatArgument(context, bound);
  return f.mul(x, f.call(Op::Sigmoid, x));
}

/// x / 2 (1 + erf(x / sqrt 2)), or x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
Object gelu(Context& context, const Bound& bound) {
  Formula f{context};
  Object x = floatArgument(context, bound);
  bool isText = !bound.has(1) || bound[1].is<const Str*>();
  std::string approximate = bound.has(1) && isText ? bound[1].as<const Str*>()->text : "none";
  Object inner;
  if (isText && approximate == "none") {
    inner = f.call(Op::Erf, f.mul(x, M_SQRT1_2));
  } else if (isText && approximate == "tanh") {
    Object cubed = f.mul(0.044715, f.mul(x, f.mul(x, x)));
    inner = f.call(Op::Tanh, f.mul(M_2_SQRTPI * M_SQRT1_2, f.add(x, cubed)));
  } else {
    context.fail(diag::badArgument, "gelu", "`approximate` to be \"none\" or \"tanh\"",
                 isText ? '"' + approximate + '"' : context.describe(bound[1]));
  }
  return f.mul(f.mul(0.5, x), f.add(1.0, inner));
}

/// 0 where x <= 0, else x. This is max(x, 0), but its gradient at 0 is 0.
Object relu(Context& context, const Bound& bound) {
  Object x = scalar(context, bound[0], "relu");
  Object zero = cast(context, int64_t(0), numberTypeOf(promote(context, {x}, /*arithmetic=*/true)));
  return select(context, compare(context, CompareOp::Le, x, int64_t(0)), zero, x);
}

/// log(1 + exp(beta x)) / beta, and x where beta x > threshold
Object softplusOf(Context& context, Object x, Object beta, Object threshold) {
  Formula f{context};
  Object scaled = f.mul(x, beta);
  Object curve = f.div(f.call(Op::Log1p, f.call(Op::Exp, minMax(context, true, scaled, threshold))), beta);
  return select(context, f.gt(scaled, threshold), x, curve);
}

Object softplus(Context& context, const Bound& bound) {
  Object beta = bound.has(1) ? scalar(context, bound[1], "softplus") : Object(1.0);
  Object threshold = bound.has(2) ? scalar(context, bound[2], "softplus") : Object(20.0);
  return softplusOf(context, floatArgument(context, bound), beta, threshold);
}

/// -softplus(-x)
Object logsigmoid(Context& context, const Bound& bound) {
  Formula f{context};
  return f.neg(softplusOf(context, f.neg(floatArgument(context, bound)), 1.0, 20.0));
}

/// x, or slope x where x < 0
Object leakyRelu(Context& context, const Bound& bound) {
  Formula f{context};
  Object x = floatArgument(context, bound),
         slope = bound.has(1) ? scalar(context, bound[1], "leaky_relu") : Object(0.01);
  return select(context, f.gt(x, int64_t(0)), x, f.mul(x, slope));
}

/// sin(y) / y for y = pi x, and the series around 0, whose derivative keeps its digits
Object sinc(Context& context, const Bound& bound) {
  Object x = floatArgument(context, bound);
  if (x.isKnownNumber()) return toDouble(x) == 0 ? 1.0 : std::sin(M_PI * toDouble(x)) / (M_PI * toDouble(x));
  Formula f{context};
  Object y = f.mul(x, M_PI), t = f.mul(y, y);
  Object series = f.add(f.mul(t, f.add(f.mul(t, f.add(f.mul(t, -1.0 / 5040), 1.0 / 120)), -1.0 / 6)), 1.0);
  return select(context, f.gt(1.0 / 16, t), series, f.div(f.call(Op::Sin, y), y));
}

/// log(x) / log(10)
Object log10(Context& context, const Bound& bound) {
  Formula f{context};
  return f.mul(f.call(Op::Log, floatArgument(context, bound)), 1 / M_LN10);
}

/// 1 / x
Object reciprocal(Context& context, const Bound& bound) {
  return binary(context, BinaryOp::Div, 1.0, scalar(context, bound[0], "reciprocal"));
}

} // namespace

llvm::ArrayRef<Builtin> floatBuiltins() {
  constexpr unsigned kTensor = kTorch | kMethod | kElementwise;
  constexpr unsigned kBoth = kTensor | kMath;
  static const Builtin rows[] = {
      {"exp", kBoth, "input", function<Op::Exp>},
      {"exp2", kBoth | kSpecial, "input", function<Op::Exp2>},
      {"expm1", kBoth | kSpecial, "input", function<Op::Expm1>},
      {"log", kTensor, "input", function<Op::Log>},
      {"log", kMath | kElementwise, "input, base=", mathLog},
      {"log2", kBoth, "input", function<Op::Log2>},
      {"log10", kBoth, "input", log10},
      {"log1p", kBoth | kSpecial, "input", function<Op::Log1p>},
      {"sqrt", kBoth, "input", function<Op::Sqrt>},
      {"rsqrt", kTensor, "input", function<Op::Rsqrt>},
      {"sin", kBoth, "input", function<Op::Sin>},
      {"cos", kBoth, "input", function<Op::Cos>},
      {"tan", kBoth, "input", function<Op::Tan>},
      {"asin", kBoth, "input", function<Op::Asin>},
      {"arcsin", kTensor, "input", function<Op::Asin>},
      {"acos", kBoth, "input", function<Op::Acos>},
      {"arccos", kTensor, "input", function<Op::Acos>},
      {"atan", kBoth, "input", function<Op::Atan>},
      {"arctan", kTensor, "input", function<Op::Atan>},
      {"atan2", kBoth, "input, other", functionOfTwo<Op::Atan2>},
      {"arctan2", kTensor, "input, other", functionOfTwo<Op::Atan2>},
      {"hypot", kTensor, "input, other", functionOfTwo<Op::Hypot>},
      {"hypot", kMath, "*coordinates", mathHypot},
      {"sinh", kBoth, "input", function<Op::Sinh>},
      {"cosh", kBoth, "input", function<Op::Cosh>},
      {"asinh", kBoth, "input", function<Op::Asinh>},
      {"arcsinh", kTensor, "input", function<Op::Asinh>},
      {"acosh", kBoth, "input", function<Op::Acosh>},
      {"arccosh", kTensor, "input", function<Op::Acosh>},
      {"atanh", kBoth, "input", function<Op::Atanh>},
      {"arctanh", kTensor, "input", function<Op::Atanh>},
      {"sinc", kTensor | kSpecial, "input", sinc},
      {"tanh", kBoth | kFunctional, "input", function<Op::Tanh>},
      {"tanh_approx", kTorch | kMethod | kElementwise | kAttnc, "input", function<Op::TanhApprox>},
      {"sigmoid", kTensor | kFunctional, "input", function<Op::Sigmoid>},
      {"expit", kSpecial | kElementwise, "input", function<Op::Sigmoid>},
      {"erf", kBoth | kSpecial, "input", function<Op::Erf>},
      {"erfc", kBoth | kSpecial, "input", function<Op::Erfc>},
      {"floor", kTensor, "input", rounding<Op::Floor>},
      {"ceil", kTensor, "input", rounding<Op::Ceil>},
      {"trunc", kTensor, "input", rounding<Op::Trunc>},
      {"fix", kTensor, "input", rounding<Op::Trunc>},
      {"round", kTensor | kSpecial, "input", rounding<Op::Round>},
      {"floor", kMath | kElementwise, "input", roundingToInt<Op::Floor>},
      {"ceil", kMath | kElementwise, "input", roundingToInt<Op::Ceil>},
      {"trunc", kMath | kElementwise, "input", roundingToInt<Op::Trunc>},
      {"silu", kFunctional | kTorch | kElementwise, "input", silu},
      {"gelu", kFunctional | kTorch | kElementwise, "input, approximate=", gelu},
      {"relu", kFunctional | kTensor, "input", relu},
      {"softplus", kFunctional | kTorch | kElementwise, "input, beta=, threshold=", softplus},
      {"logsigmoid", kFunctional | kTorch | kElementwise, "input", logsigmoid},
      {"leaky_relu", kFunctional | kTorch | kElementwise, "input, negative_slope=", leakyRelu},
      {"reciprocal", kTensor, "input", reciprocal},
  };
  return rows;
}

} // namespace attnc::dsl
