#include "analysis/tile_verdict.h"

#include "analysis/ir_names.h"
#include "ir/levels.h"
#include "ir/walk.h"

namespace attnc::analysis {

using ir::Leaf;

Range TileJudge::leaf(uint32_t id, const ir::Bindings& bindings) const {
  const ir::Node& node = (*module)[{id}];
  switch (leafOf(node)) {
  case Leaf::Const: return Range::ofConst(*module, {id});
  case Leaf::Dim: return Range::integers(Type::I32, bindings.dims[node.attr], bindings.dims[node.attr]);
  case Leaf::Iter: return Range::ofIter(node);
  case Leaf::Scalar: {
    const ir::ScalarValue& scalar = bindings.scalars[node.attr];
    if (node.type != Type::F32) return Range::integers(node.type, scalar.integer, scalar.integer);
    return scalar.real == scalar.real ? Range::reals(scalar.real, scalar.real) : Range::full(Type::F32);
  }
  case Leaf::Param: break; // coordinates come with the tile
  }
  return Range::full(node.type);
}

static Range rangeOf(const ir::Module& module, const ir::Node& node, llvm::ArrayRef<Range> ranges) {
  if (node.op == Op::Load) return Range::ofElement(module.tensors[node.attr].dtype);
  llvm::SmallVector<Range, 3> operands;
  for (Value operand : node.operands) operands.push_back(ranges[operand.id]);
  return transfer(node, operands);
}

/// Whether a parameter has a known range in each tile.
static bool isPosition(ParamKind param) {
  return param == ParamKind::B || param == ParamKind::H || param == ParamKind::QIdx || param == ParamKind::KvIdx;
}

/// Returns what a value of this level depends on: rows (1), columns (2), both (3) or neither.
static int positionsOf(ir::Level level) {
  switch (level) {
  case ir::Level::Launch:
  case ir::Level::Head: return 0;
  case ir::Level::Row: return 1;
  case ir::Level::Column: return 2;
  case ir::Level::Element: break;
  }
  return 3;
}

TileJudge::TileJudge(const ir::Module& module, const ir::Bindings& bindings, llvm::ArrayRef<Value> toldValues)
    : module(&module), root(module.output(ir::kMask)) {
  if (!root) return;
  std::vector<bool> isTold(module.size(), false);
  for (Value value : toldValues) {
    told.push_back(value.id);
    isTold[value.id] = true;
  }
  const std::vector<bool> needed = ir::neededBy(module, *root, [&](Value value) { return isTold[value.id]; });
  std::vector<ir::Level> levels = ir::levels(module);
  ranges.resize(root->id + 1);
  tight.resize(root->id + 1);
  for (uint32_t id = 0; id <= root->id; ++id) ranges[id].type = module[{id}].type;
  for (uint32_t id = 0; id <= root->id; ++id) {
    if (!needed[id] || isTold[id]) continue;
    const ir::Node& node = module[{id}];
    const bool isGiven = isLeaf(node);
    if (isGiven) ranges[id] = leaf(id, bindings);
    if (!isGiven && levels[id] != ir::Level::Launch) {
      const auto operand = [&](size_t i) { return i < node.operands.size() ? node.operands[i].id : 0; };
      const uint32_t a = operand(0), b = operand(1);
      steps.push_back({kindOf(module, node), (positionsOf(levels[a]) & positionsOf(levels[b])) == 0, id, a, b});
    }
    if (!isGiven && levels[id] == ir::Level::Launch) ranges[id] = rangeOf(module, node, ranges);
    const bool isCoordinate = node.op == Op::Param && isPosition(ParamKind(node.attr));
    if (isCoordinate) coordinates.push_back({ParamKind(node.attr), id});
    tight[id] = isCoordinate || ranges[id].isSingle();
  }
}

/// Returns the kind of a node whose operands are integers. Sums are of i32, so that they cannot exceed int64.
TileJudge::Step::Kind TileJudge::kindOf(const ir::Module& module, const ir::Node& node) {
  using Kind = Step::Kind;
  for (Value operand : node.operands)
    if (module[operand].type == Type::F32) return Kind::Other;
  const bool isBool = node.type == Type::Bool, isInt = node.type == Type::I32;
  switch (node.op) {
  case Op::Add: return isInt ? Kind::Add : Kind::Other;
  case Op::Sub: return isInt ? Kind::Sub : Kind::Other;
  case Op::Eq: return Kind::Eq;
  case Op::Ne: return Kind::Ne;
  case Op::Lt: return Kind::Lt;
  case Op::Le: return Kind::Le;
  case Op::And: return isBool ? Kind::And : Kind::Other;
  case Op::Or: return isBool ? Kind::Or : Kind::Other;
  case Op::Not: return isBool ? Kind::Not : Kind::Other;
  default: return Kind::Other;
  }
}

/// Computes the range of a step. The kinds give what transfer() gives, without its generality: this is the inner loop
/// of every block mask. They also tell whether the range is tight: an operation that grows or falls in each operand
/// takes its bounds where those of the operands meet.
inline void TileJudge::compute(const Step& step) const {
  using Kind = Step::Kind;
  if (step.kind == Kind::Other) return computeOther(step.id);
  const int64_t aLo = ranges[step.a].lo, aHi = ranges[step.a].hi, bLo = ranges[step.b].lo, bHi = ranges[step.b].hi;
  const bool meet = tight[step.a] & tight[step.b] & (step.isApart | (aLo == aHi) | (bLo == bHi));
  const auto set = [&](int64_t lo, int64_t hi, bool isTight) {
    ranges[step.id].lo = lo, ranges[step.id].hi = hi;
    tight[step.id] = isTight | (lo == hi);
  };
  const auto setI32 = [&](int64_t lo, int64_t hi) {
    lo >= INT32_MIN&& hi <= INT32_MAX ? set(lo, hi, meet) : set(INT32_MIN, INT32_MAX, false);
  };
  const auto setEqual = [&](bool holds) {
    const bool overlap = aLo <= bHi && bLo <= aHi, areOne = aLo == aHi && bLo == bHi && aLo == bLo;
    const bool share = aLo == bLo || aLo == bHi || aHi == bLo || aHi == bHi; // a bound: equal where they meet
    set(holds ? areOne : !overlap, holds ? overlap : !areOne, meet && share);
  };
  switch (step.kind) {
  case Kind::Add: return setI32(aLo + bLo, aHi + bHi);
  case Kind::Sub: return setI32(aLo - bHi, aHi - bLo);
  case Kind::Eq: return setEqual(true);
  case Kind::Ne: return setEqual(false);
  case Kind::Lt: return set(aHi < bLo, aLo < bHi, meet);
  case Kind::Le: return set(aHi <= bLo, aLo <= bHi, meet);
  case Kind::And: return set(aLo & bLo, aHi & bHi, meet);
  case Kind::Or: return set(aLo | bLo, aHi | bHi, meet);
  case Kind::Not: return set(1 - aHi, 1 - aLo, tight[step.a]);
  case Kind::Other: return;
  }
}

void TileJudge::computeOther(uint32_t id) const {
  ranges[id] = rangeOf(*module, (*module)[{id}], ranges);
  tight[id] = ranges[id].isSingle();
}

Verdict TileJudge::judge(const ScoreRect& tile, llvm::ArrayRef<const Range*> toldRanges) const {
  if (!root) return Verdict::AlwaysTrue;
  for (size_t i = 0; i < told.size(); ++i) {
    ranges[told[i]] = *toldRanges[i];
    tight[told[i]] = !toldRanges[i]->mayBeNan;
  }
  for (const auto& [param, id] : coordinates) {
    const auto set = [&](int64_t lo, int64_t hi) { ranges[id].lo = lo, ranges[id].hi = hi; };
    if (param == ParamKind::QIdx) set(tile.qBegin, tile.qEnd - 1);
    if (param == ParamKind::KvIdx) set(tile.kvBegin, tile.kvEnd - 1);
    if (param == ParamKind::B) set(tile.b, tile.b);
    if (param == ParamKind::H) set(tile.h, tile.h);
  }
  for (const Step& step : steps) compute(step);
  const Range& result = ranges[root->id];
  if (!result.isSingle()) return tight[root->id] ? Verdict::Mixed : Verdict::Undecided;
  return result.lo ? Verdict::AlwaysTrue : Verdict::AlwaysFalse;
}

} // namespace attnc::analysis
