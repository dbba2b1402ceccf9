// Functions of numbers that choose, test, clamp and convert: where, clamp, abs, isnan, .to(dtype), ...
#include "dsl/builtins/builtins.h"
#include "dsl/objects/arithmetic.h"
#include "dsl/objects/arrays.h"
#include "dsl/objects/known_numbers.h"
#include "dsl/tracing/tracer.h"

#include <cmath>
#include <limits>

namespace attnc::dsl {

Object argument(Tracer& tracer, const Bound& bound, size_t i) { return scalar(tracer, bound[i], bound.builtin->name); }

using ir::Op;
using ir::Type;

namespace {

bool isFloat(Tracer& tracer, Object x) {
  return x.is<double>() || (x.isTraced() && tracer.type(x.as<ir::Value>()) == Type::F32);
}

Object absolute(Tracer& tracer, const Bound& bound) {
  Object x = argument(tracer, bound, 0);
  if (x.is<double>()) return std::abs(x.as<double>());
  if (x.isKnownNumber()) return toInt(tracer, x) < 0 ? unary(tracer, UnaryOp::Neg, x) : Object(toInt(tracer, x));
  Type type = promote(tracer, {x}, /*arithmetic=*/true);
  return tracer.make(Op::Abs, type, {lift(tracer, x, type)});
}

/// min(max(input, low), high)
Object clampTo(Tracer& tracer, Object x, std::optional<Object> low, std::optional<Object> high) {
  if (!low && !high) tracer.fail(diag::missingArgument, "clamp", "min");
  if (low) x = minMax(tracer, /*isMin=*/false, x, scalar(tracer, *low, "clamp"));
  if (high) x = minMax(tracer, /*isMin=*/true, x, scalar(tracer, *high, "clamp"));
  return x;
}

Object clamp(Tracer& tracer, const Bound& bound) {
  return clampTo(tracer, argument(tracer, bound, 0), bound.values[1], bound.values[2]);
}
Object clampMin(Tracer& tracer, const Bound& bound) {
  return clampTo(tracer, argument(tracer, bound, 0), bound[1], std::nullopt);
}
Object clampMax(Tracer& tracer, const Bound& bound) {
  return clampTo(tracer, argument(tracer, bound, 0), std::nullopt, bound[1]);
}

template <bool isMin> Object extremeOfTwo(Tracer& tracer, const Bound& bound) {
  return minMax(tracer, isMin, argument(tracer, bound, 0), argument(tracer, bound, 1));
}

Object choose(Tracer& tracer, Object condition, Object yes, Object no) {
  condition = scalar(tracer, condition, "where");
  bool isBool = condition.is<bool>() || (condition.isTraced() && tracer.type(condition.as<ir::Value>()) == Type::Bool);
  if (!isBool) tracer.fail(diag::whereCondition, tracer.describe(condition));
  return select(tracer, condition, scalar(tracer, yes, "where"), scalar(tracer, no, "where"));
}

/// torch.where(condition, yes, no)
Object where(Tracer& tracer, const Bound& bound) { return choose(tracer, bound[0], bound[1], bound[2]); }
/// yes.where(condition, no)
Object whereMethod(Tracer& tracer, const Bound& bound) { return choose(tracer, bound[1], bound[0], bound[2]); }
/// input.masked_fill(mask, value)
Object maskedFill(Tracer& tracer, const Bound& bound) { return choose(tracer, bound[1], bound[2], bound[0]); }

/// -1, 0 or 1; NaN gives 0.
Object sign(Tracer& tracer, const Bound& bound) {
  Object x = argument(tracer, bound, 0);
  Type type = promote(tracer, {x}, /*arithmetic=*/true);
  Object zero = cast(tracer, int64_t(0), type), one = cast(tracer, int64_t(1), type),
         minus = cast(tracer, int64_t(-1), type);
  Object isAbove = compare(tracer, CompareOp::Gt, x, zero), isBelow = compare(tracer, CompareOp::Lt, x, zero);
  return select(tracer, isAbove, one, select(tracer, isBelow, minus, zero));
}

Object isNan(Tracer& tracer, const Bound& bound) {
  Object x = argument(tracer, bound, 0);
  if (x.isKnownNumber()) return std::isnan(toDouble(x));
  if (!isFloat(tracer, x)) return false;
  return tracer.make(Op::IsNan, Type::Bool, {x.as<ir::Value>()});
}

/// |x| == inf, |x| < inf
template <CompareOp op> Object againstInfinity(Tracer& tracer, const Bound& bound) {
  if (!isFloat(tracer, argument(tracer, bound, 0))) return op == CompareOp::Lt;
  return compare(tracer, op, absolute(tracer, bound), std::numeric_limits<double>::infinity());
}

// Conversions -------------------------------------------------------------------------------------------------------

template <NumberType type> Object convert(Tracer& tracer, const Bound& bound) {
  return cast(tracer, argument(tracer, bound, 0), computedType(tracer, type));
}

/// Whether this is torch.device(...), "cuda", or the number of a GPU.
bool isDevice(Object value) { return value.is<Opaque>() || value.is<const Str*>() || value.is<int64_t>(); }

/// x.to(dtype), x.to(other), x.to(device), x.to(device, dtype). Devices are ignored.
Object to(Tracer& tracer, const Bound& bound) {
  std::optional<Object> target = bound.values[3];
  for (size_t i : {1, 2})
    if (bound.has(i) && !isDevice(bound[i])) target = bound[i];
  if (!target) return bound[0];
  NumberType type =
      target->isNumber() || target->isArrayLike() ? dtypeOf(tracer, *target) : dtypeArgument(tracer, *target);
  auto convert = [&](Object x) { return cast(tracer, scalar(tracer, x, "to"), computedType(tracer, type)); };
  Object value = decay(tracer, bound[0]);
  if (!value.isArrayLike()) return convert(value);
  return broadcast(tracer, {value}, [&](llvm::ArrayRef<Object> items) { return convert(items[0]); });
}

Object typeAs(Tracer& tracer, const Bound& bound) {
  return cast(tracer, argument(tracer, bound, 0), computedType(tracer, dtypeOf(tracer, bound[1])));
}

Object itself(Tracer&, const Bound& bound) { return bound[0]; }

/// The same number or array, without a gradient.
Object detach(Tracer& tracer, const Bound& bound) {
  Object value = decay(tracer, bound[0]);
  if (value.isTraced()) return stopGradient(tracer, value.as<ir::Value>());
  if (value.is<const Tensor*>()) {
    auto* tensor = tracer.heap.make<Tensor>(*value.as<const Tensor*>());
    tensor->isDetached = true;
    return static_cast<const Tensor*>(tensor);
  }
  if (!value.is<const Array*>()) return value;
  return broadcast(tracer, {value}, [&](llvm::ArrayRef<Object> items) {
    return items[0].isTraced() ? stopGradient(tracer, items[0].as<ir::Value>()) : items[0];
  });
}

/// torch.full_like(input, value, dtype=None): a number of the input's type.
Object fillLike(Tracer& tracer, const Bound& bound, Object value, size_t dtype) {
  NumberType type =
      bound.has(dtype) ? dtypeArgument(tracer, bound[dtype]) : dtypeOf(tracer, argument(tracer, bound, 0));
  return cast(tracer, value, computedType(tracer, type));
}
Object fullLike(Tracer& tracer, const Bound& bound) { return fillLike(tracer, bound, argument(tracer, bound, 1), 2); }
Object zerosLike(Tracer& tracer, const Bound& bound) { return fillLike(tracer, bound, int64_t(0), 1); }
Object onesLike(Tracer& tracer, const Bound& bound) { return fillLike(tracer, bound, int64_t(1), 1); }

Object typeInfo(Tracer& tracer, const Bound& bound) { return TypeInfo{dtypeArgument(tracer, bound[0])}; }

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
      {"minimum", kTensor, "input, other", extremeOfTwo<true>},
      {"maximum", kTensor, "input, other", extremeOfTwo<false>},
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
      {"finfo", kTorch, "dtype", typeInfo},
      {"iinfo", kTorch, "dtype", typeInfo},
  };
  return rows;
}

} // namespace attnc::dsl
