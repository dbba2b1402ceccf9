// Functions of numbers that choose, test, clamp and convert: where, clamp, abs, isnan, .to(dtype), ...
#include "dsl/builtins/builtins.h"
#include "dsl/ir_names.h"
#include "dsl/objects/arithmetic.h"
#include "dsl/objects/arrays.h"
#include "dsl/objects/comparison.h"
#include "dsl/objects/known_numbers.h"
#include "dsl/objects/scalar_operators.h"
#include "dsl/objects/scalars.h"
#include "dsl/objects/tensors.h"

#include <cmath>
#include <limits>

namespace attnc::dsl {

Object argument(Context& context, const Bound& bound, size_t i) {
  return scalar(context, bound[i], bound.builtin->name);
}

namespace {

Object absolute(Context& context, const Bound& bound) {
  Object x = argument(context, bound, 0);
  if (x.is<double>()) return std::abs(x.as<double>());
  if (x.is<bool>()) return int64_t(x.as<bool>());
  if (x.isKnownNumber()) return x.as<int64_t>() < 0 ? unary(context, UnaryOp::Neg, x) : x;
  const Meeting type = promote(context, {x}, /*arithmetic=*/true);
  return operate(context, Op::Abs, type, {lift(context, x, type)});
}

/// Returns min(x, bound) or max(x, bound). A bound that equals x takes no half of the gradient.
Object limit(Context& context, bool isMin, Object x, Object bound) {
  const Object limited = minMax(context, isMin, x, bound);
  if (!isFloat(context, limited) || bound.isKnownNumber()) return limited;
  return select(context, compareScalars(context, CompareOp::Eq, x, bound), x, limited);
}

/// min(max(input, low), high)
Object clampTo(Context& context, Object x, std::optional<Object> low, std::optional<Object> high) {
  if (!low && !high)
    context.fail(diag::missingArgument, "clamp", "min", "write `clamp(min=0)`, `clamp(max=1)`, or both");
  if (low) x = limit(context, /*isMin=*/false, x, scalar(context, *low, "clamp"));
  if (high) x = limit(context, /*isMin=*/true, x, scalar(context, *high, "clamp"));
  return x;
}

Object clamp(Context& context, const Bound& bound) {
  return clampTo(context, argument(context, bound, 0), bound.values[1], bound.values[2]);
}
Object clampMin(Context& context, const Bound& bound) {
  return clampTo(context, argument(context, bound, 0), bound[1], std::nullopt);
}
Object clampMax(Context& context, const Bound& bound) {
  return clampTo(context, argument(context, bound, 0), std::nullopt, bound[1]);
}

template <bool isMin> Object extremeOfTwo(Context& context, const Bound& bound) {
  return minMax(context, isMin, argument(context, bound, 0), argument(context, bound, 1));
}

Object choose(Context& context, Object condition, Object yes, Object no) {
  condition = scalar(context, condition, "where");
  if (!isBool(context, condition)) context.fail(diag::whereCondition, context.describe(condition));
  return select(context, condition, scalar(context, yes, "where"), scalar(context, no, "where"));
}

/// torch.where(condition, yes, no)
Object where(Context& context, const Bound& bound) { return choose(context, bound[0], bound[1], bound[2]); }
/// yes.where(condition, no)
Object whereMethod(Context& context, const Bound& bound) { return choose(context, bound[1], bound[0], bound[2]); }
/// input.masked_fill(mask, value): of the input's dtype
Object maskedFill(Context& context, const Bound& bound) {
  Object input = argument(context, bound, 0), value = argument(context, bound, 2);
  if (isInt(context, input) && isInt(context, value)) {
    checkFits(context, value, input);
    if (value.isTraced()) value = cast(context, value, dtypeOf(context, input));
  }
  return choose(context, bound[1], value, input);
}

/// -1, 0 or 1; NaN gives 0.
Object sign(Context& context, const Bound& bound) {
  Object x = argument(context, bound, 0);
  const NumberType type = numberTypeOf(promote(context, {x}, /*arithmetic=*/true));
  Object zero = cast(context, int64_t(0), type), one = cast(context, int64_t(1), type),
         minus = cast(context, int64_t(type == NumberType::U8 ? 0 : -1), type);
  Object isAbove = compare(context, CompareOp::Gt, x, zero), isBelow = compare(context, CompareOp::Lt, x, zero);
  return select(context, isAbove, one, select(context, isBelow, minus, zero));
}

Object isNan(Context& context, const Bound& bound) {
  Object x = argument(context, bound, 0);
  if (x.isKnownNumber()) return std::isnan(toDouble(x));
  if (!isFloat(context, x)) return false;
  return context.make(Op::IsNan, Type::Bool, {x.as<ir::Value>()});
}

/// |x| == inf, |x| < inf
template <CompareOp op> Object againstInfinity(Context& context, const Bound& bound) {
  if (!isFloat(context, argument(context, bound, 0))) return op == CompareOp::Lt;
  return compare(context, op, absolute(context, bound), std::numeric_limits<double>::infinity());
}

// Conversions -------------------------------------------------------------------------------------------------------

template <NumberType type> Object convert(Context& context, const Bound& bound) {
  return cast(context, argument(context, bound, 0), computedType(context, type));
}

/// Whether this is torch.device(...), "cuda", or the number of a GPU.
bool isDevice(Object value) { return value.is<Opaque>() || value.is<const Str*>() || value.is<int64_t>(); }

/// x.to(dtype), x.to(other), x.to(device), x.to(device, dtype). Devices are ignored.
Object to(Context& context, const Bound& bound) {
  std::optional<Object> target = bound.values[3];
  for (size_t i : {1, 2})
    if (bound.has(i) && !isDevice(bound[i])) target = bound[i];
  if (!target) return bound[0];
  NumberType type =
      target->isNumber() || target->isArrayLike() ? dtypeOf(context, *target) : dtypeArgument(context, *target);
  auto convert = [&](Object x) { return cast(context, scalar(context, x, "to"), computedType(context, type)); };
  Object value = decay(context, bound[0]);
  if (!value.isArrayLike()) return convert(value);
  return broadcast(context, {value}, [&](llvm::ArrayRef<Object> items) { return convert(items[0]); });
}

Object typeAs(Context& context, const Bound& bound) {
  return cast(context, argument(context, bound, 0), computedType(context, dtypeOf(context, bound[1])));
}

Object itself(Context&, const Bound& bound) { return bound[0]; }

/// The same number or array, without a gradient.
Object detach(Context& context, const Bound& bound) {
  Object value = decay(context, bound[0]);
  if (value.isNumber()) return stopGradient(context, value);
  if (value.is<const Tensor*>()) {
    auto* tensor = context.heap.make<Tensor>(*value.as<const Tensor*>());
    tensor->isDetached = true;
    return static_cast<const Tensor*>(tensor);
  }
  if (!value.is<const Array*>()) return value;
  return broadcast(context, {value}, [&](llvm::ArrayRef<Object> items) { return stopGradient(context, items[0]); });
}

/// torch.full_like(input, value, dtype=None): a number of the input's type.
Object fillLike(Context& context, const Bound& bound, Object value, size_t dtype) {
  NumberType type =
      bound.has(dtype) ? dtypeArgument(context, bound[dtype]) : dtypeOf(context, argument(context, bound, 0));
  return cast(context, value, computedType(context, type));
}
Object fullLike(Context& context, const Bound& bound) {
  return fillLike(context, bound, argument(context, bound, 1), 2);
}
Object zerosLike(Context& context, const Bound& bound) { return fillLike(context, bound, int64_t(0), 1); }
Object onesLike(Context& context, const Bound& bound) { return fillLike(context, bound, int64_t(1), 1); }

/// attnc.random(seed, b, h, q_idx, kv_idx): a number in [0, 1) by position. Positions count modulo 2^32.
Object random(Context& context, const Bound& bound) {
  constexpr const char* kNeeds[] = {"an int as `seed`", "an int as `b`", "an int as `h`", "an int as `q_idx`",
                                    "an int as `kv_idx`"};
  llvm::SmallVector<ir::Value, 5> operands;
  for (size_t i = 0; i < std::size(kNeeds); ++i) {
    const Object value = argument(context, bound, i);
    if (isFloat(context, value)) context.fail(diag::badArgument, "random", kNeeds[i], context.describe(value));
    operands.push_back(lift(context, value, i == 0 ? Type::I64 : Type::I32));
  }
  return context.make(Op::Random, Type::F32, operands);
}

Object typeInfo(Context& context, const Bound& bound) { return TypeInfo{dtypeArgument(context, bound[0])}; }

} // namespace

llvm::ArrayRef<Builtin> numberBuiltins() {
  constexpr unsigned kTensor = kTorch | kMethod | kElementwise;
  constexpr unsigned kOnlyMethod = kMethod | kElementwise;
  static const Builtin rows[] = {
      {"abs", kTensor | kPython, "input", absolute},
      {"absolute", kTensor, "input", absolute},
      {"fabs", kMath | kElementwise, "input", absolute},
      {"clamp", kTensor, "input, min=, max=", clamp},
      {"clip", kTensor, "input, min=, max=", clamp},
      {"clamp_min", kTensor, "input, min", clampMin},
      {"clamp_max", kTensor, "input, max", clampMax},
      {"minimum", kTensor | kArithmetic, "input, other", extremeOfTwo<true>},
      {"maximum", kTensor | kArithmetic, "input, other", extremeOfTwo<false>},
      {"where", kTorch | kElementwise, "condition, input, other", where},
      {"where", kOnlyMethod, "input, condition, other", whereMethod},
      {"masked_fill", kTensor, "input, mask, value", maskedFill},
      {"sign", kTensor, "input", sign},
      {"sgn", kTensor, "input", sign},
      {"isnan", kTensor | kMath, "input", isNan},
      {"isinf", kTensor | kMath, "input", againstInfinity<CompareOp::Eq>},
      {"isfinite", kTensor | kMath, "input", againstInfinity<CompareOp::Lt>},
      {"to", kMethod, "input, target=, second=, dtype=, device=, non_blocking=, copy=, memory_format=", to},
      {"type", kMethod, "input, target=, second=, dtype=", to},
      {"type_as", kOnlyMethod, "input, other", typeAs},
      {"int", kOnlyMethod, "input", convert<NumberType::I32>},
      {"long", kOnlyMethod, "input", convert<NumberType::I64>},
      {"float", kOnlyMethod, "input", convert<NumberType::F32>},
      {"bool", kOnlyMethod, "input", convert<NumberType::Bool>},
      {"half", kOnlyMethod, "input", convert<NumberType::F16>},
      {"bfloat16", kOnlyMethod, "input", convert<NumberType::BF16>},
      {"double", kOnlyMethod, "input", convert<NumberType::F64>},
      {"item", kMethod, "input", detach},
      {"clone", kMethod | kTorch, "input, memory_format=", itself},
      {"detach", kMethod | kTorch, "input", detach},
      {"contiguous", kMethod, "input", itself},
      {"cuda", kMethod, "input, device=, non_blocking=", itself},
      {"cpu", kMethod, "input", itself},
      {"requires_grad_", kMethod, "input, requires_grad=", itself},
      {"pin_memory", kMethod, "input", itself},
      {"full_like", kTorch | kElementwise, "input, fill_value, dtype=, device=", fullLike},
      {"zeros_like", kTorch | kElementwise, "input, dtype=, device=", zerosLike},
      {"ones_like", kTorch | kElementwise, "input, dtype=, device=", onesLike},
      {"random", kAttnc | kElementwise, "seed, b, h, q_idx, kv_idx", random},
      {"finfo", kTorch, "dtype", typeInfo},
      {"iinfo", kTorch, "dtype", typeInfo},
  };
  return rows;
}

} // namespace attnc::dsl
