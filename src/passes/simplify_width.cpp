// Rules of width: an i64 whose numbers fit into 32 bits is computed as an i32, and widened again for those who need an
// i64. PyTorch's indices are i64, whereas positions and extents take 25 bits, so this concerns nearly every index.
#include "passes/rebuild.h"
#include "passes/simplifier.h"

namespace attnc::passes {

Simplifier::Rewritten Simplifier::narrowed(Value v) {
  if (typeOf(v) != Type::I64) return std::nullopt;
  if (is(v, Op::Cast) && typeOf(arg(v, 0)) == Type::I32) return arg(v, 0);
  if (!isNarrow(v)) return std::nullopt;
  return build({Op::Cast, Type::I32, 0, {v}, out[v].line});
}

/// Computes an i64 operation in 32 bits if its result fits.
Simplifier::Rewritten Simplifier::narrow(const Node& n) {
  const auto isOneOf = [&](auto... ops) { return ((n.op == ops) || ...); };
  if (isLeaf(n) || n.op == Op::Load || !isNarrow(keep(out, n))) return std::nullopt;
  if (isOneOf(Op::Shl, Op::Shr)) return narrowShift(n);
  if (n.op == Op::Cast && typeOf(n.operands[0]) != Type::F32) return std::nullopt; // a widening cast
  // The low half of these results depends only on the low halves of the operands. The others need whole operands.
  const bool isRing = isOneOf(Op::Neg, Op::Add, Op::Sub, Op::Mul, Op::And, Op::Or, Op::Xor, Op::Not, Op::Select);
  Node small{n.op, Type::I32, n.attr, {}, n.line};
  for (Value x : n.operands) {
    if (typeOf(x) == Type::I64) {
      const Rewritten half = narrowed(x);
      if (!half && !isRing) return std::nullopt;
      x = half ? *half : make(Op::Cast, Type::I32, n, {x});
    }
    small.operands.push_back(x);
  }
  return make(Op::Cast, n, {build(small)}); // i64(x) + i64(y) = i64(x + y)
}

/// The count is taken modulo the width, and 32 bits have fewer counts.
Simplifier::Rewritten Simplifier::narrowShift(const Node& n) {
  constexpr int64_t kWide = 63, kMost = 31;
  const Value x = n.operands[0];
  const bool isLeft = n.op == Op::Shl;
  const Range count = intervals.range(n.operands[1]);
  const Rewritten half = narrowed(x);
  Rewritten by;
  if (count.isSingle())
    by = number(Type::I32, isLeft ? count.lo & kWide : std::min(count.lo & kWide, kMost));
  else if (count.within(0, kWide) && !isLeft)
    by = make(Op::Min, Type::I32, n, {*narrowed(n.operands[1]), number(Type::I32, kMost)});
  if (!by || (isLeft ? count.lo & kWide & ~kMost : !half)) return std::nullopt;
  const Value low = half ? *half : make(Op::Cast, Type::I32, n, {x});
  return make(Op::Cast, n, {make(n.op, Type::I32, n, {low, *by})});
}

} // namespace attnc::passes
