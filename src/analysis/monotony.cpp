#include "analysis/monotony.h"

#include "analysis/ir_names.h"

#include <llvm/ADT/STLExtras.h>

namespace attnc::analysis {

namespace {

constexpr int64_t kFar = int64_t(1) << 30;

Direction flip(Direction direction) {
  switch (direction) {
  case Direction::Up: return Direction::Down;
  case Direction::Down: return Direction::Up;
  case Direction::Constant:
  case Direction::Unknown: break;
  }
  return direction;
}

/// Returns the direction of a value that grows with both operands.
Direction join(Direction a, Direction b) {
  if (a == Direction::Constant) return b;
  return b == Direction::Constant || a == b ? a : Direction::Unknown;
}

} // namespace

/// Returns the direction of a product, if one factor has a known sign and is the same in every row.
Direction Monotony::product(const Node& node) const {
  for (unsigned i : {0u, 1u}) {
    if (directions[node.operands[i].id] != Direction::Constant) continue;
    const Range& factor = intervals.range(node.operands[i]);
    Direction other = directions[node.operands[1 - i].id];
    if (factor.lo >= 0) return other;
    if (factor.hi <= 0) return flip(other);
  }
  return Direction::Unknown;
}

/// Returns the direction of a select: both branches must move alike, and the switch between them must not go back.
Direction Monotony::select(const Node& node) const {
  Direction condition = directions[node.operands[0].id];
  Value early = node.operands[1], late = node.operands[2];
  Direction branches = join(directions[early.id], directions[late.id]);
  if (condition == Direction::Constant) return branches;
  if (condition == Direction::Unknown || !isInt(node.type)) return Direction::Unknown;
  if (condition == Direction::Up) std::swap(early, late);
  const Range before = intervals.range(early), after = intervals.range(late);
  if (before.hi <= after.lo && join(branches, Direction::Up) == Direction::Up) return Direction::Up;
  if (before.lo >= after.hi && join(branches, Direction::Down) == Direction::Down) return Direction::Down;
  return Direction::Unknown;
}

Direction Monotony::operation(Value value, const Node& node) const {
  auto operand = [&](unsigned i) { return directions[node.operands[i].id]; };
  auto isConstantFrom = [&](unsigned i, int64_t least) {
    return operand(i) == Direction::Constant && intervals.range(node.operands[i]).lo >= least;
  };
  Type from = module[node.operands[0]].type;
  if (from == Type::F32) return Direction::Unknown;
  switch (node.op) {
  case Op::Add: return intervals.isExact(value) ? join(operand(0), operand(1)) : Direction::Unknown;
  case Op::Sub: return intervals.isExact(value) ? join(operand(0), flip(operand(1))) : Direction::Unknown;
  case Op::Neg: return intervals.isExact(value) ? flip(operand(0)) : Direction::Unknown;
  case Op::Mul: return intervals.isExact(value) ? product(node) : Direction::Unknown;
  case Op::Min:
  case Op::Max: return join(operand(0), operand(1));
  case Op::Coord: { // positions and `before` differ by less than the range of i32
    const bool grows = ir::GridAxis::of(node).axis == 0 && intervals.range(node.operands[0]).within(-kFar, kFar);
    return grows ? operand(0) : Direction::Unknown;
  }
  case Op::FloorDiv: return isConstantFrom(1, 1) ? operand(0) : Direction::Unknown;
  case Op::And:
  case Op::Or: return from == Type::Bool ? join(operand(0), operand(1)) : Direction::Unknown;
  case Op::Not: return flip(operand(0));
  case Op::Lt:
  case Op::Le: return join(flip(operand(0)), operand(1));
  case Op::Select: return select(node);
  case Op::Cast: {
    Range limits = Range::full(node.type);
    bool keepsNumber = node.type != Type::F32 && (node.type != Type::Bool || from == Type::Bool) &&
                       intervals.range(node.operands[0]).within(limits.lo, limits.hi);
    return keepsNumber ? operand(0) : Direction::Unknown;
  }
#define LEAF(Name, ...) case Op::Name:
#define FUNCTION(Name, ...) case Op::Name:
#include "ir/ops.def"
  case Op::Abs:
  case Op::Mod:
  case Op::Div:
  case Op::Hypot:
  case Op::Xor:
  case Op::Shl:
  case Op::Shr:
  case Op::Eq:
  case Op::Ne:
  case Op::Load:
  case Op::Floor:
  case Op::Ceil:
  case Op::Trunc:
  case Op::Round:
  case Op::StopGradient:
  case Op::InGrid:
  case Op::IsNan:
  case Op::Sum:
  case Op::Random: return Direction::Unknown;
  }
  return Direction::Unknown;
}

Direction Monotony::compute(Value value) const {
  const Node& node = module[value];
  if (node.op == Op::Param) {
    switch (ParamKind(node.attr)) {
    case ParamKind::B:
    case ParamKind::H: return Direction::Constant;
    case ParamKind::QIdx: return Direction::Up;
    case ParamKind::KvIdx:
    case ParamKind::Score:
    case ParamKind::Grad:
    case ParamKind::ScoreTangent:
    case ParamKind::GradTangent:
    case ParamKind::Prob:
    case ParamKind::Round: return Direction::Unknown;
    }
  }
  bool isConstant = llvm::all_of(node.operands, [&](Value v) { return directions[v.id] == Direction::Constant; });
  return isConstant ? Direction::Constant : operation(value, node);
}

Direction Monotony::of(Value value) {
  intervals.of(value);
  while (directions.size() <= value.id) directions.push_back(compute({uint32_t(directions.size())}));
  return directions[value.id];
}

} // namespace attnc::analysis
