#include "dsl/objects/scalars.h"

#include "dsl/ir_names.h"
#include "dsl/objects/known_numbers.h"
#include "dsl/objects/wraps.h"

namespace attnc::dsl {

namespace {

bool fits32(int64_t value) { return value == int32_t(value); }

/// Whether ints of this dtype have 64 bits, and not those of the IR value.
bool isWide(Ints ints) { return ints == Ints::Python || ints == Ints::I64; }

/// Returns the width of a small int in bits; 0 for others.
unsigned smallWidth(Ints ints) { return ints == Ints::U8 || ints == Ints::I8 ? 8 : ints == Ints::I16 ? 16 : 0; }

Ints widerOf(Ints a, Ints b) {
  if ((a == Ints::U8 && b == Ints::I8) || (a == Ints::I8 && b == Ints::U8)) return Ints::I16;
  return std::max(a, b);
}

Ints intsOf(NumberType type) {
  switch (type) {
  case NumberType::U8: return Ints::U8;
  case NumberType::I8: return Ints::I8;
  case NumberType::I16: return Ints::I16;
  case NumberType::I32: return Ints::I32;
  default: return Ints::I64;
  }
}

/// Returns an integer value modulo 2^width, as an int of this dtype.
ir::Value narrowed(Context& context, ir::Value value, Ints ints) {
  if (isWide(ints)) return value;
  if (context.type(value) == Type::I64) value = context.make(Op::Cast, Type::I32, {value});
  const unsigned width = smallWidth(ints);
  if (!width) return value;
  const int64_t mask = (int64_t(1) << width) - 1, half = ints == Ints::U8 ? 0 : int64_t(1) << (width - 1);
  if (context.range(value).within(-half, mask - half)) return value;
  const auto constant = [&](int64_t number) { return context.module.constInt(Type::I32, number); };
  if (half) value = context.make(Op::Add, Type::I32, {value, constant(half)});
  value = context.make(Op::And, Type::I32, {value, constant(mask)});
  return half ? context.make(Op::Sub, Type::I32, {value, constant(half)}) : value;
}

ir::Value widened(Context& context, ir::Value value) {
  if (context.module.isConst(value)) return context.module.constInt(Type::I64, context.module.integer(value));
  return context.type(value) == Type::I64 ? value : context.make(Op::Cast, Type::I64, {value});
}

} // namespace

bool isBool(Context& context, Object value) {
  return value.is<bool>() || (value.isTraced() && context.type(value.as<ir::Value>()) == Type::Bool);
}

bool isInt(Context& context, Object value) {
  return value.is<int64_t>() || (value.isTraced() && ir::isInt(context.type(value.as<ir::Value>())));
}

bool isFloat(Context& context, Object value) {
  return value.is<double>() || (value.isTraced() && context.type(value.as<ir::Value>()) == Type::F32);
}

NumberType numberTypeOf(Meeting type) {
  if (!ir::isInt(type.type)) return NumberType(type.type);
  switch (type.ints) {
  case Ints::U8: return NumberType::U8;
  case Ints::I8: return NumberType::I8;
  case Ints::I16: return NumberType::I16;
  case Ints::I32: return NumberType::I32;
  case Ints::Python:
  case Ints::I64: break;
  }
  return NumberType::I64;
}

bool needs64(Context& context, Op op, Meeting type, llvm::ArrayRef<ir::Value> operands) {
  if (type.type != Type::I32 || !isWide(type.ints)) return false;
  llvm::SmallVector<analysis::Range, 2> ranges;
  for (ir::Value operand : operands) {
    const analysis::Range& range = context.range(operand);
    ranges.push_back(analysis::Range::integers(Type::I64, range.lo, range.hi));
  }
  switch (op) {
  case Op::And:
  case Op::Or:
  case Op::Xor:
  case Op::Not:
  case Op::Min:
  case Op::Max:
  case Op::Mod:
  case Op::Shr: return false;
  case Op::Shl: // the most that a count shifts
    if (!ranges[1].within(0, 31)) return true;
    ranges[1].lo = ranges[1].hi;
    ranges[0] = join(ranges[0], analysis::Range::integers(Type::I64, 0, 0));
    break;
  default: break;
  }
  return !analysis::transfer({op, Type::I64, 0, {}, 0}, ranges).within(INT32_MIN, INT32_MAX);
}

Meeting promote(Context& context, llvm::ArrayRef<Object> scalars, bool arithmetic) {
  bool areInts = arithmetic, isWideValue = false;
  Ints ints = Ints::Python;
  for (Object value : scalars) {
    if (isFloat(context, value)) return Type::F32;
    if (!isInt(context, value)) continue;
    areInts = true;
    ints = widerOf(ints, value.ints);
    isWideValue |= value.isTraced() ? context.type(value.as<ir::Value>()) == Type::I64 : !fits32(value.as<int64_t>());
  }
  if (!areInts) return Type::Bool;
  const bool hasTracedBool = llvm::any_of(scalars, [&](Object x) { return x.isTraced() && !isInt(context, x); });
  if (ints == Ints::Python && hasTracedBool) ints = Ints::I64; // a bool tensor and a Python number
  return {isWide(ints) && isWideValue ? Type::I64 : Type::I32, ints};
}

ir::Value lift(Context& context, Object scalar, Meeting to) {
  if (scalar.isTraced()) {
    ir::Value value = scalar.as<ir::Value>();
    if (ir::isInt(to.type) && ir::isInt(context.type(value))) value = narrowed(context, value, to.ints);
    return context.type(value) == to.type ? value : context.make(Op::Cast, to.type, {value});
  }
  context.charge(1);
  switch (to.type) {
  case Type::Bool: return context.module.constBool(toDouble(scalar) != 0);
  case Type::I32:
  case Type::I64: {
    const int64_t number = toInt(context, scalar), held = wrapped(number, to.ints);
    if (held != number) warnOfNumber(context, number, to.ints);
    return context.module.constInt(to.type, held);
  }
  case Type::F32: return context.module.constF32(float(toDouble(scalar)));
  }
  return {};
}

Object cast(Context& context, Object scalar, NumberType type) {
  if (type == NumberType::Bool || type == NumberType::F32) {
    if (scalar.isTraced()) return lift(context, scalar, ir::Type(type));
    return type == NumberType::F32 ? Object(toDouble(scalar)) : Object(toDouble(scalar) != 0);
  }
  const Ints ints = intsOf(type);
  Object result;
  if (!scalar.isTraced()) {
    const int64_t number = toInt(context, scalar);
    // Only tensors wrap: torch.tensor(300, dtype=torch.uint8) is an error.
    if (scalar.ints == Ints::Python && wrapped(number, ints) != number) context.fail(diag::intOverflow);
    result = wrapped(number, ints);
  } else {
    const ir::Value value = scalar.as<ir::Value>();
    const bool isWideFloat = type == NumberType::I64 && context.type(value) == Type::F32;
    const bool isI64 = context.type(value) == Type::I64;
    result = narrowed(context, lift(context, scalar, {isWideFloat || isI64 ? Type::I64 : Type::I32, Ints::I64}), ints);
  }
  result.ints = ints;
  return result;
}

Object stopGradient(Context& context, Object value) {
  return isFloat(context, value) && value.isTraced()
             ? Object(context.make(Op::StopGradient, Type::F32, {value.as<ir::Value>()}))
             : value;
}

Object operate(Context& context, Op op, Meeting type, llvm::ArrayRef<ir::Value> operands) {
  llvm::SmallVector<ir::Value, 2> values(operands.begin(), operands.end());
  if (needs64(context, op, type, values)) {
    type.type = Type::I64;
    for (ir::Value& value : values) value = widened(context, value);
  }
  warnOfWrap(context, op, type.ints, values);
  ir::Value result = context.make(op, type.type, values);
  if (!ir::isInt(type.type)) return result;
  if (type.type == Type::I64 && context.range(result).within(INT32_MIN, INT32_MAX))
    result = context.make(Op::Cast, Type::I32, {result});
  return {narrowed(context, result, type.ints), type.ints};
}

Object arith(Context& context, Op op, Object left, Object right) {
  const Meeting type = promote(context, {left, right}, /*arithmetic=*/true);
  return operate(context, op, type, {lift(context, left, type), lift(context, right, type)});
}

void checkFits(Context& context, Object known, Object other) {
  if (!known.is<int64_t>() || known.ints != Ints::Python || !isInt(context, other)) return;
  const int64_t number = known.as<int64_t>();
  // As torch: -1 is 255 of u8.
  const bool fits = wrapped(number, other.ints) == number ||
                    (other.ints == Ints::U8 && number < 0 && wrapped(-number, other.ints) == -number);
  if (!fits) context.fail(diag::intOutOfDType, number, nameOf(other.ints));
}

Object select(Context& context, Object condition, Object yes, Object no) {
  checkFits(context, yes, no);
  checkFits(context, no, yes);
  Meeting type = promote(context, {yes, no}, /*arithmetic=*/false);
  if (ir::isInt(type.type) && type.ints == Ints::Python) type.ints = Ints::I64; // torch.where makes a tensor
  if (condition.is<bool>()) {
    Object picked = condition.as<bool>() ? yes : no;
    if (picked.is<int64_t>()) picked = Object(wrapped(picked.as<int64_t>(), type.ints));
    picked.ints = Ints::I64; // torch computes it
    return cast(context, picked, numberTypeOf(type));
  }
  const ir::Value value = context.make(Op::Select, type.type,
                                       {condition.as<ir::Value>(), lift(context, yes, type), lift(context, no, type)});
  return {value, type.ints};
}

Object asBool(Context& context, Object operand) { return cast(context, operand, Type::Bool); }

} // namespace attnc::dsl
