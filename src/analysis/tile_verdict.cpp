#include "analysis/tile_verdict.h"

#include "ir/levels.h"
#include "ir/walk.h"

namespace attnc::analysis {

using ir::Leaf;
using ir::Op;
using ir::ParamKind;
using ir::Type;
using ir::Value;

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
  for (uint32_t id = 0; id <= root->id; ++id) ranges[id].type = module[{id}].type;
  for (uint32_t id = 0; id <= root->id; ++id) {
    if (!needed[id] || isTold[id]) continue;
    const ir::Node& node = module[{id}];
    const bool isGiven = isLeaf(node);
    if (isGiven) ranges[id] = leaf(id, bindings);
    if (node.op == Op::Param || (!isGiven && levels[id] != ir::Level::Launch)) {
      const auto operand = [&](size_t i) { return i < node.operands.size() ? node.operands[i].id : 0; };
      steps.push_back({kindOf(module, node), id, operand(0), operand(1)});
    }
    if (!isGiven && levels[id] == ir::Level::Launch) ranges[id] = rangeOf(module, node, ranges);
  }
}

/// Returns the kind of a node whose operands are i32 or bool: their sums cannot exceed int64.
TileJudge::Step::Kind TileJudge::kindOf(const ir::Module& module, const ir::Node& node) {
  using Kind = Step::Kind;
  if (node.op == Op::Param) return Kind::Coordinate;
  for (Value operand : node.operands)
    if (module[operand].type != Type::I32 && module[operand].type != Type::Bool) return Kind::Other;
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

static Range coordinateIn(const ScoreRect& tile, ParamKind param) {
  switch (param) {
  case ParamKind::Score:
  case ParamKind::Grad: return Range::full(Type::F32);
  case ParamKind::B: return Range::integers(Type::I32, tile.b, tile.b);
  case ParamKind::H: return Range::integers(Type::I32, tile.h, tile.h);
  case ParamKind::QIdx: return Range::integers(Type::I32, tile.qBegin, tile.qEnd - 1);
  case ParamKind::KvIdx: return Range::integers(Type::I32, tile.kvBegin, tile.kvEnd - 1);
  case ParamKind::Round: return Range::full(Type::I32);
  }
  return Range::full(Type::I32);
}

/// Computes the range of a step. The kinds give what transfer() gives, without its generality: this is the inner loop
/// of every block mask.
void TileJudge::compute(const Step& step, const ScoreRect& tile) const {
  using Kind = Step::Kind;
  const Range &a = ranges[step.a], &b = ranges[step.b];
  Range& result = ranges[step.id];
  const auto set = [&](int64_t lo, int64_t hi) { result.lo = lo, result.hi = hi; };
  const auto setI32 = [&](int64_t lo, int64_t hi) {
    lo >= INT32_MIN&& hi <= INT32_MAX ? set(lo, hi) : set(INT32_MIN, INT32_MAX);
  };
  const bool overlap = a.lo <= b.hi && b.lo <= a.hi, areOne = a.lo == a.hi && b.lo == b.hi && a.lo == b.lo;
  switch (step.kind) {
  case Kind::Coordinate: result = coordinateIn(tile, ParamKind((*module)[{step.id}].attr)); return;
  case Kind::Add: return setI32(a.lo + b.lo, a.hi + b.hi);
  case Kind::Sub: return setI32(a.lo - b.hi, a.hi - b.lo);
  case Kind::Eq: return set(areOne, overlap);
  case Kind::Ne: return set(!overlap, !areOne);
  case Kind::Lt: return set(a.hi < b.lo, a.lo < b.hi);
  case Kind::Le: return set(a.hi <= b.lo, a.lo <= b.hi);
  case Kind::And: return set(a.lo & b.lo, a.hi & b.hi);
  case Kind::Or: return set(a.lo | b.lo, a.hi | b.hi);
  case Kind::Not: return set(1 - a.hi, 1 - a.lo);
  case Kind::Other: result = rangeOf(*module, (*module)[{step.id}], ranges); return;
  }
}

Verdict TileJudge::judge(const ScoreRect& tile, llvm::ArrayRef<Range> toldRanges) const {
  if (!root) return Verdict::AlwaysTrue;
  for (size_t i = 0; i < told.size(); ++i) ranges[told[i]] = toldRanges[i];
  for (const Step& step : steps) compute(step, tile);
  const Range& result = ranges[root->id];
  if (!result.isSingle()) return Verdict::Undecided;
  return result.lo ? Verdict::AlwaysTrue : Verdict::AlwaysFalse;
}

} // namespace attnc::analysis
