#include "dsl/objects/wraps.h"

#include "analysis/wrap_example.h"
#include "dsl/ir_names.h"

#include <fmt/format.h>

namespace attnc::dsl {

using analysis::Range;

namespace {

using Wide = __int128;

/// Whether few values of the other operand fit next to this number.
bool isLarge(Op op, unsigned bits, int64_t number) {
  const Wide magnitude = number < 0 ? -Wide(number) : Wide(number);
  switch (op) {
  case Op::Add:
  case Op::Sub: return magnitude >= Wide(1) << (bits - 2);
  case Op::Mul: return magnitude >= Wide(1) << (bits / 2);
  case Op::Shl: return number >= int64_t(bits / 2);
  default: return false;
  }
}

/// Whether an operation on these ranges wraps around for more than extreme values.
bool isSuspicious(Op op, Ints ints, unsigned bits, const Range& a, const Range& b) {
  const auto isLargeNumber = [&](const Range& range) { return range.isSingle() && isLarge(op, bits, range.lo); };
  if (isLargeNumber(b) || (op != Op::Shl && isLargeNumber(a))) return true;
  if (bits == 8 && op == Op::Mul) return !a.isSingle() && !b.isSingle();
  if (ints == Ints::U8) return op == Op::Sub; // wraps for every smaller number
  // In 64 bits, no product of positions and scalars wraps by chance. Captured ints may be anything.
  const auto isData = [&](const Range& range) { return range.lo == INT64_MIN && range.hi == INT64_MAX; };
  return bits == 64 && op != Op::Shl && !isData(a) && !isData(b);
}

} // namespace

const char* nameOf(Ints ints) {
  constexpr const char* kNames[] = {"int", "uint8", "int8", "int16", "int32", "int64"};
  return kNames[size_t(ints)];
}

int64_t wrapped(int64_t number, Ints ints) {
  switch (ints) {
  case Ints::U8: return uint8_t(number);
  case Ints::I8: return int8_t(number);
  case Ints::I16: return int16_t(number);
  case Ints::I32: return int32_t(number);
  case Ints::Python:
  case Ints::I64: return number;
  }
  return number;
}

void warnOfWrap(Context& context, Op op, Ints dtype, llvm::ArrayRef<ir::Value> operands) {
  const Ints ints = dtype == Ints::Python ? Ints::I64 : dtype;
  const ir::Type type = context.type(operands[0]);
  if (operands.size() != 2 || !ir::isInt(type) || (ints == Ints::I64 && type != ir::Type::I64)) return;
  const unsigned bits = ints == Ints::U8 || ints == Ints::I8 ? 8 : ints == Ints::I16 ? 16 : ints == Ints::I32 ? 32 : 64;
  const Wide half = Wide(1) << (bits - 1), lo = ints == Ints::U8 ? 0 : -half, hi = ints == Ints::U8 ? 255 : half - 1;
  const Range a = context.range(operands[0]), b = context.range(operands[1]);
  if (!isSuspicious(op, ints, bits, a, b)) return;
  if (const auto example = analysis::wrapExample(op, a, b, lo, hi))
    context.diagnostics.warn(context.at, diag::integerWrap, nameOf(ints),
                             fmt::format("{} is {}", example->operation, wrapped(int64_t(example->result), ints)));
}

void warnOfNumber(Context& context, int64_t number, Ints ints) {
  context.diagnostics.warn(context.at, diag::integerWrap, nameOf(ints),
                           fmt::format("{} is {}", number, wrapped(number, ints)));
}

} // namespace attnc::dsl
