// In: any module. Out: the same values in fewer or cheaper operations: identities of integers, booleans, selects and
// comparisons; exact identities of f32; and whatever the interval analysis decides, such as a comparison that always
// holds, the wrap of an index that is never negative, or an i64 whose numbers fit into 32 bits, which becomes an i32.
// Constants fold on the way.
//
//   %0 = lt i32 %q_idx, 0
//   %1 = add i32 %q_idx, #Q_LEN
//   %2 = select i32 %0, %1, %q_idx      =>   %q_idx
//
// The result is a fixed point: simplifying it changes nothing. Not: changes to f32 rounding; choices of levels.
// floor_div and mod by constants stay.
#include "passes/constants.h"
#include "passes/pass.h"
#include "passes/rebuild.h"
#include "passes/simplifier.h"

#include <bit>

namespace attnc::passes {

bool Simplifier::isReal(Value v, float number) const {
  return isConst(v) && typeOf(v) == Type::F32 && out.integer(v) == int64_t(std::bit_cast<uint32_t>(number));
}

Simplifier::Rewritten Simplifier::apply(const Node& n) {
  auto operand = [&](unsigned i) { return n.operands[i]; };
  bool isReal = n.type == Type::F32;
  if (n.type == Type::I64)
    if (Rewritten result = narrow(n)) return result;
  switch (n.op) {
  case Op::Add: return isReal ? addReals(n, operand(0), operand(1)) : addIntegers(n, operand(0), operand(1));
  case Op::Sub: return isReal ? subReals(n, operand(0), operand(1)) : subIntegers(n, operand(0), operand(1));
  case Op::Mul: return isReal ? mulReals(n, operand(0), operand(1)) : mulIntegers(n, operand(0), operand(1));
  case Op::Div: return divReals(n, operand(0), operand(1));
  case Op::FloorDiv:
  case Op::Mod:
  case Op::Shl:
  case Op::Shr: return divide(n, operand(0), operand(1));
  case Op::Neg: return negate(n, operand(0));
  case Op::Abs: return absolute(n, operand(0));
  case Op::Min:
  case Op::Max: return minimum(n, operand(0), operand(1));
  case Op::Floor:
  case Op::Ceil:
  case Op::Trunc:
  case Op::Round: return roundReal(n, operand(0));
  case Op::And:
  case Op::Or: return conjunction(n, operand(0), operand(1));
  case Op::Xor: return exclusive(n, operand(0), operand(1));
  case Op::Not: return complement(n, operand(0));
  case Op::Eq:
  case Op::Ne:
  case Op::Lt:
  case Op::Le: return compare(n, operand(0), operand(1));
  case Op::Select: return select(n);
  case Op::Cast: return cast(n, operand(0));
  case Op::Sum: return sum(n, operand(0));
#define LEAF(Name, ...) case Op::Name:
#define FUNCTION(Name, ...) case Op::Name:
#include "ir/ops.def"
  case Op::Hypot:
  case Op::Load:
  case Op::Coord:
  case Op::InGrid:
  case Op::StopGradient:
  case Op::IsNan:
  case Op::Random: return std::nullopt; // no identities
  }
  return std::nullopt;
}

ir::Value Simplifier::build(const Node& node) {
  if (std::optional<Value> folded = foldNode(out, node)) return *folded;
  Node n = node;
  if (isCommutative(n.op) && isConst(n.operands[0])) std::swap(n.operands[0], n.operands[1]);
  if (n.op == Op::Load)
    for (Value& index : n.operands) index = narrowed(index).value_or(index);
  if (Rewritten result = apply(n)) return *result;
  Value value = keep(out, n);
  if (n.type == Type::F32 || isConst(value)) return value;
  const Range& range = intervals.range(value);
  return range.isSingle() ? out.constant(n.type, range.lo) : value;
}

Status simplify(ir::Module& module, const PassContext& context) {
  constexpr int kMaxRounds = 8; // two suffice in practice; the bound limits time
  bool changed = true;
  for (int round = 0; changed && round < kMaxRounds; ++round) {
    changed = false;
    std::optional<Simplifier> simplifier;
    module = rebuild(module, [&](ir::Module& out, const ir::Node& node) {
      if (!simplifier) simplifier.emplace(out, context.pins);
      ir::Value value = simplifier->build(node);
      changed = changed || value != keep(out, node);
      return value;
    });
  }
  module = rebuild(module, keep);
  return {};
}

} // namespace attnc::passes
