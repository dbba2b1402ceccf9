#include "dsl/objects/scalars.h"

#include "dsl/objects/known_numbers.h"

namespace attnc::dsl {

using ir::Op;
using ir::Type;

namespace {

bool fits32(int64_t value) { return value == int32_t(value); }

} // namespace

Type promote(Context& context, llvm::ArrayRef<Object> scalars, bool arithmetic) {
  Type result = arithmetic ? Type::I32 : Type::Bool;
  bool wide = false;
  for (Object value : scalars) {
    if (value.isTraced())
      result = std::max(result, context.type(value.as<ir::Value>()));
    else if (value.is<double>())
      result = Type::F32;
    else if (value.is<int64_t>())
      result = std::max(result, Type::I32);
    if (value.is<int64_t>() && !fits32(value.as<int64_t>())) wide = true;
  }
  return wide && result == Type::I32 ? Type::I64 : result;
}

ir::Value lift(Context& context, Object scalar, Type type) {
  if (scalar.isTraced()) {
    ir::Value value = scalar.as<ir::Value>();
    return context.type(value) == type ? value : context.make(Op::Cast, type, {value});
  }
  context.charge(1);
  Object known = cast(context, scalar, type);
  switch (type) {
  case Type::Bool: return context.module.constBool(known.as<bool>());
  case Type::I32:
  case Type::I64: return context.module.constInt(type, known.as<int64_t>());
  case Type::F32: return context.module.constF32(float(known.as<double>()));
  }
  return {};
}

Object cast(Context& context, Object scalar, Type type) {
  if (scalar.isTraced()) return lift(context, scalar, type);
  switch (type) {
  case Type::Bool: return toDouble(scalar) != 0;
  case Type::F32: return toDouble(scalar);
  case Type::I32:
    if (!fits32(toInt(context, scalar))) context.fail(diag::intOverflow);
    return toInt(context, scalar);
  case Type::I64: return toInt(context, scalar);
  }
  return scalar;
}

ir::Value stopGradient(Context& context, ir::Value value) {
  return context.type(value) == Type::F32 ? context.make(Op::StopGradient, Type::F32, {value}) : value;
}

Object arith(Context& context, Op op, Object left, Object right) {
  Type type = promote(context, {left, right}, /*arithmetic=*/true);
  return context.make(op, type, {lift(context, left, type), lift(context, right, type)});
}

Object select(Context& context, Object condition, Object yes, Object no) {
  Type type = promote(context, {yes, no}, /*arithmetic=*/false);
  if (condition.is<bool>()) return cast(context, condition.as<bool>() ? yes : no, type);
  return context.make(Op::Select, type, {condition.as<ir::Value>(), lift(context, yes, type), lift(context, no, type)});
}

Object asBool(Context& context, Object operand) { return cast(context, operand, Type::Bool); }

} // namespace attnc::dsl
