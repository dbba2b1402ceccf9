// Transfer functions of ranges; range.h states their contract. Bounds of integers are computed in 128 bits, so they
// never wrap themselves.
#include "analysis/range.h"

#include "analysis/ir_names.h"
#include "ir/semantics.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>
#include <optional>

namespace attnc::analysis {

using Wide = __int128;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Wide lowest(Type type) { return type == Type::Bool ? 0 : type == Type::I32 ? Wide(INT32_MIN) : Wide(INT64_MIN); }
Wide highest(Type type) { return type == Type::Bool ? 1 : type == Type::I32 ? Wide(INT32_MAX) : Wide(INT64_MAX); }
bool fits(Type type, Wide lo, Wide hi) { return lowest(type) <= lo && hi <= highest(type); }

/// Returns the range, or all of the type if the operation may wrap around.
Range wrapped(Type type, Wide lo, Wide hi) {
  return fits(type, lo, hi) ? Range::integers(type, int64_t(lo), int64_t(hi)) : Range::full(type);
}

struct WideRange {
  Wide lo, hi;
};

WideRange corners(const Range& a, const Range& b, Wide (*of)(Wide, Wide)) {
  auto [lo, hi] = std::minmax({of(a.lo, b.lo), of(a.lo, b.hi), of(a.hi, b.lo), of(a.hi, b.hi)});
  return {lo, hi};
}

/// Returns the mathematical result of neg, abs, add, sub, mul; nullopt for other operations.
std::optional<WideRange> unwrapped(Op op, llvm::ArrayRef<Range> x) {
  if (op == Op::Neg) return WideRange{-Wide(x[0].hi), -Wide(x[0].lo)};
  if (op == Op::Add) return WideRange{Wide(x[0].lo) + x[1].lo, Wide(x[0].hi) + x[1].hi};
  if (op == Op::Sub) return WideRange{Wide(x[0].lo) - x[1].hi, Wide(x[0].hi) - x[1].lo};
  if (op == Op::Mul) return corners(x[0], x[1], [](Wide a, Wide b) { return a * b; });
  if (op != Op::Abs) return std::nullopt;
  Wide lo = x[0].lo, hi = x[0].hi;
  return WideRange{lo > 0 ? lo : hi < 0 ? -hi : 0, std::max(-lo, hi)};
}

// ---- Division: the divisor's range is split at zero, which gives 0 ----

Range floorDivByOneSign(const Range& a, const Range& b) {
  WideRange result = corners(a, b, [](Wide x, Wide y) {
    Wide quotient = x / y;
    return x % y != 0 && (x < 0) != (y < 0) ? quotient - 1 : quotient;
  });
  return wrapped(a.type, result.lo, result.hi);
}

Range modByOneSign(const Range& a, const Range& b) {
  if (b.lo == b.hi && a.type != Type::Bool) { // within one period, the remainder is a shifted copy
    int64_t divisor = b.lo;
    if (ir::semantics::floorDiv(a.lo, divisor) == ir::semantics::floorDiv(a.hi, divisor) && divisor != -1)
      return Range::integers(a.type, ir::semantics::floorMod(a.lo, divisor), ir::semantics::floorMod(a.hi, divisor));
  }
  if (b.lo > 0) {
    int64_t hi = a.lo >= 0 ? std::min(a.hi, b.hi - 1) : b.hi - 1;
    return Range::integers(a.type, a.lo >= 0 && a.hi < b.lo ? a.lo : 0, hi);
  }
  int64_t lo = a.hi <= 0 ? std::max(a.lo, b.lo + 1) : b.lo + 1;
  return Range::integers(a.type, lo, 0);
}

Range divide(const Range& a, const Range& b, Range (*byOneSign)(const Range&, const Range&)) {
  Range result = Range::integers(a.type, 0, 0);
  bool started = b.contains(0);
  auto add = [&](int64_t lo, int64_t hi) {
    if (lo > hi) return;
    Range part = byOneSign(a, Range::integers(b.type, lo, hi));
    result = started ? join(result, part) : part;
    started = true;
  };
  add(b.lo, std::min<int64_t>(b.hi, -1));
  add(std::max<int64_t>(b.lo, 1), b.hi);
  return result;
}

// ---- Bits ----

/// Returns the largest number with as many bits as `value`. Precondition: value >= 0.
int64_t allOnes(int64_t value) { return value == 0 ? 0 : int64_t(~uint64_t(0) >> std::countl_zero(uint64_t(value))); }

Range bits(Op op, Type type, const Range& a, const Range& b) {
  if (a.isSingle() && b.isSingle()) {
    int64_t value = op == Op::And ? a.lo & b.lo : op == Op::Or ? a.lo | b.lo : a.lo ^ b.lo;
    return Range::integers(type, value, value);
  }
  bool aPositive = a.lo >= 0, bPositive = b.lo >= 0;
  if (op == Op::And) {
    if (type == Type::Bool) return Range::integers(type, a.lo & b.lo, a.hi & b.hi);
    const auto most = [](const Range& x) { return x.isSingle() ? x.lo : allOnes(x.hi); }; // the bits that may be set
    if (aPositive && bPositive) return Range::integers(type, 0, std::min({a.hi, b.hi, most(a) & most(b)}));
    if (aPositive || bPositive) return Range::integers(type, 0, aPositive ? a.hi : b.hi);
  }
  if (!aPositive || !bPositive) { // as many bits as the longest operand, and the sign
    int64_t longest = 0;
    for (int64_t bound : {a.lo, a.hi, b.lo, b.hi}) longest |= bound < 0 ? ~bound : bound;
    return Range::integers(type, ~allOnes(longest), allOnes(longest));
  }
  return Range::integers(type, op == Op::Or ? std::max(a.lo, b.lo) : 0, allOnes(a.hi | b.hi));
}

Range shift(Op op, Type type, const Range& a, const Range& count) {
  int64_t mask = type == Type::I32 ? 31 : 63;
  if (op == Op::Shl) {
    if (!count.isSingle()) return Range::full(type);
    Wide factor = Wide(1) << (count.lo & mask);
    return wrapped(type, a.lo * factor, a.hi * factor);
  }
  if (count.isSingle()) return Range::integers(type, a.lo >> (count.lo & mask), a.hi >> (count.lo & mask));
  return Range::integers(type, std::min<int64_t>(a.lo, 0), std::max<int64_t>(a.hi, a.lo < 0 ? -1 : 0));
}

Range ofIntegers(const ir::Node& node, llvm::ArrayRef<Range> x) {
  Type type = node.type;
  switch (node.op) {
  case Op::Neg:
  case Op::Abs:
  case Op::Add:
  case Op::Sub:
  case Op::Mul: {
    const WideRange result = *unwrapped(node.op, x);
    return wrapped(type, result.lo, result.hi);
  }
  case Op::Min: return Range::integers(type, std::min(x[0].lo, x[1].lo), std::min(x[0].hi, x[1].hi));
  case Op::Max: return Range::integers(type, std::max(x[0].lo, x[1].lo), std::max(x[0].hi, x[1].hi));
  case Op::FloorDiv: return divide(x[0], x[1], floorDivByOneSign);
  case Op::Mod: return divide(x[0], x[1], modByOneSign);
  case Op::And:
  case Op::Or:
  case Op::Xor: return bits(node.op, type, x[0], x[1]);
  case Op::Not:
    if (type == Type::Bool) return Range::integers(type, 1 - x[0].hi, 1 - x[0].lo);
    return Range::integers(type, ~x[0].hi, ~x[0].lo);
  case Op::Shl:
  case Op::Shr:
    return shift(node.op, type, x[0], x[1]);
    // These do not map integers to integers, or have a case of their own.
#define LEAF(Name, ...) case Op::Name:
#define FUNCTION(Name, ...) case Op::Name:
#include "ir/ops.def"
  case Op::Div:
  case Op::Hypot:
  case Op::Eq:
  case Op::Ne:
  case Op::Lt:
  case Op::Le:
  case Op::Select:
  case Op::Cast:
  case Op::Load:
  case Op::Coord:
  case Op::InGrid:
  case Op::Floor:
  case Op::Ceil:
  case Op::Trunc:
  case Op::Round:
  case Op::StopGradient:
  case Op::IsNan:
  case Op::Sum:
  case Op::Random: break;
  }
  return Range::full(type);
}

// ---- f32: bounds are widened to the nearest single-precision numbers around them ----

/// Returns the numbers that round to [lo, hi]: a fused multiply-add leaves sums and products unrounded.
Range widened(double lo, double hi) {
  float below = float(lo), above = float(hi);
  if (below > lo) below = std::nextafter(below, -std::numeric_limits<float>::infinity());
  if (above < hi) above = std::nextafter(above, std::numeric_limits<float>::infinity());
  return Range::reals(below, above);
}

bool isFinite(const Range& a) { return std::isfinite(a.realLo) && std::isfinite(a.realHi) && !a.mayBeNan; }

Range ofReals(const ir::Node& node, llvm::ArrayRef<Range> x) {
  if (node.op == Op::StopGradient) return x[0];
  for (const Range& operand : x)
    if (!isFinite(operand) && node.op != Op::Min && node.op != Op::Max && node.op != Op::Neg)
      return Range::full(Type::F32);
  auto [lo, hi] = std::make_pair(x[0].realLo, x[0].realHi);
  bool nan = x[0].mayBeNan || x.back().mayBeNan;
  const Range& y = x.back();
  switch (node.op) {
  case Op::Neg: return Range::reals(-hi, -lo, nan);
  case Op::Abs: return Range::reals(lo > 0 ? lo : hi < 0 ? -hi : 0, std::max(-lo, hi));
  case Op::Add: return widened(lo + y.realLo, hi + y.realHi);
  case Op::Sub: return widened(lo - y.realHi, hi - y.realLo);
  case Op::Mul: {
    auto [least, most] = std::minmax({lo * y.realLo, lo * y.realHi, hi * y.realLo, hi * y.realHi});
    return widened(least, most);
  }
  case Op::Min: return Range::reals(std::min(lo, y.realLo), std::min(hi, y.realHi), nan);
  case Op::Max: return Range::reals(std::max(lo, y.realLo), std::max(hi, y.realHi), nan);
  case Op::Floor: return Range::reals(std::floor(lo), std::floor(hi));
  case Op::Ceil: return Range::reals(std::ceil(lo), std::ceil(hi));
  case Op::Trunc: return Range::reals(std::trunc(lo), std::trunc(hi));
  case Op::Round: return Range::reals(std::nearbyint(lo), std::nearbyint(hi));
  // Divisions and functions have no claim. The other operations do not give f32, or have a case of their own.
  case Op::FloorDiv:
  case Op::Mod:
  case Op::Div:
  case Op::Hypot:
#define LEAF(Name, ...) case Op::Name:
#define FUNCTION(Name, ...) case Op::Name:
#include "ir/ops.def"
  case Op::And:
  case Op::Or:
  case Op::Xor:
  case Op::Not:
  case Op::Shl:
  case Op::Shr:
  case Op::Eq:
  case Op::Ne:
  case Op::Lt:
  case Op::Le:
  case Op::Select:
  case Op::Cast:
  case Op::Load:
  case Op::Coord:
  case Op::InGrid:
  case Op::StopGradient:
  case Op::IsNan:
  case Op::Sum:
  case Op::Random: break;
  }
  return Range::full(Type::F32);
}

/// Returns the range of as many terms as the loop has rounds, with the rounding of each f32 addition.
Range sum(const ir::Node& node, const Range& term) {
  const int64_t count = ir::Loop::of(node).count;
  if (node.type != Type::F32) return wrapped(node.type, Wide(term.lo) * count, Wide(term.hi) * count);
  if (!isFinite(term)) return Range::full(Type::F32);
  const double rounds = double(count), largest = std::max(std::abs(term.realLo), std::abs(term.realHi)) * rounds;
  // Each partial sum is rounded by at most 2^-24 of itself. `error` bounds the sum of all rounding errors, including
  // those of the errors.
  const double error = largest * rounds * 0x1p-23 * std::exp(rounds * 0x1p-23);
  return widened(term.realLo * rounds - error, term.realHi * rounds + error);
}

// ---- Tests and casts ----

Range decided(bool canBeFalse, bool canBeTrue) { return Range::integers(Type::Bool, !canBeFalse, canBeTrue); }

template <class T> Range compared(Op op, T aLo, T aHi, T bLo, T bHi, bool nan) {
  bool overlap = aLo <= bHi && bLo <= aHi, single = aLo == aHi && bLo == bHi && aLo == bLo;
  if (op == Op::Eq) return decided(nan || !single, overlap);
  if (op == Op::Ne) return decided(overlap, nan || !single);
  if (op == Op::Lt) return decided(nan || aHi >= bLo, aLo < bHi);
  assert(op == Op::Le);
  return decided(nan || aHi > bLo, aLo <= bHi);
}

Range compare(Op op, const Range& a, const Range& b) {
  if (a.isInteger()) return compared(op, a.lo, a.hi, b.lo, b.hi, false);
  return compared(op, a.realLo, a.realHi, b.realLo, b.realHi, a.mayBeNan || b.mayBeNan);
}

Range cast(const Range& a, Type to) {
  if (to == Type::F32) return widened(double(a.lo), double(a.hi));
  if (a.isInteger()) {
    if (to == Type::Bool) return decided(a.contains(0), a.lo != 0 || a.hi != 0);
    return fits(to, a.lo, a.hi) ? Range::integers(to, a.lo, a.hi) : Range::full(to);
  }
  if (to == Type::Bool) {
    bool hasZero = a.realLo <= 0 && 0 <= a.realHi;
    return decided(hasZero, a.mayBeNan || a.realLo != 0 || a.realHi != 0);
  }
  auto saturated = [&](double x) {
    return to == Type::I32 ? int64_t(ir::semantics::saturate<int32_t>(x)) : ir::semantics::saturate<int64_t>(x);
  };
  Range result = Range::integers(to, saturated(a.realLo), saturated(a.realHi));
  return a.mayBeNan ? join(result, Range::integers(to, 0, 0)) : result;
}

} // namespace

Range Range::full(Type type) {
  if (type == Type::F32) return reals(-kInfinity, kInfinity, true);
  return integers(type, int64_t(lowest(type)), int64_t(highest(type)));
}

Range Range::ofConst(const ir::Module& module, ir::Value value) {
  if (module[value].type != Type::F32)
    return integers(module[value].type, module.integer(value), module.integer(value));
  double number = module.f32(value);
  return std::isnan(number) ? full(Type::F32) : reals(number, number);
}

Range Range::ofElement(DType dtype) {
  if (dtype == DType::U8) return integers(Type::I32, 0, UINT8_MAX);
  if (dtype == DType::I8) return integers(Type::I32, INT8_MIN, INT8_MAX);
  if (dtype == DType::I16) return integers(Type::I32, INT16_MIN, INT16_MAX);
  return full(ir::loadedType(dtype));
}

Range join(const Range& a, const Range& b) {
  return {a.type,
          std::min(a.lo, b.lo),
          std::max(a.hi, b.hi),
          std::min(a.realLo, b.realLo),
          std::max(a.realHi, b.realHi),
          a.mayBeNan || b.mayBeNan};
}

Range transfer(const ir::Node& node, llvm::ArrayRef<Range> operands) {
  switch (ir::info(node.op).rule) {
  case ir::TypeRule::Leaf:
  case ir::TypeRule::Load:
  case ir::TypeRule::Grid: return Range::full(node.type);
  case ir::TypeRule::Compare: return compare(node.op, operands[0], operands[1]);
  case ir::TypeRule::Test: return decided(true, operands[0].mayBeNan);
  case ir::TypeRule::Cast: return cast(operands[0], node.type);
  case ir::TypeRule::Select:
    if (operands[0].isSingle()) return operands[0].lo ? operands[1] : operands[2];
    return join(operands[1], operands[2]);
  case ir::TypeRule::Sum: return sum(node, operands[0]);
  case ir::TypeRule::Random: return Range::reals(0, 1 - 0x1p-24);
  case ir::TypeRule::Arith:
  case ir::TypeRule::Int:
  case ir::TypeRule::Bits:
  case ir::TypeRule::Shift:
  case ir::TypeRule::Float: break;
  }
  return node.type == Type::F32 ? ofReals(node, operands) : ofIntegers(node, operands);
}

bool cannotWrap(const ir::Node& node, llvm::ArrayRef<Range> operands) {
  const std::optional<WideRange> result = unwrapped(node.op, operands);
  return result && fits(node.type, result->lo, result->hi);
}

} // namespace attnc::analysis
