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
  for (uint32_t id = 0; id <= root->id; ++id) {
    if (!needed[id] || isTold[id]) continue;
    const ir::Node& node = module[{id}];
    const bool isGiven = isLeaf(node);
    if (isGiven) ranges[id] = leaf(id, bindings);
    if (node.op == Op::Param || (!isGiven && levels[id] != ir::Level::Launch)) steps.push_back(id);
    if (!isGiven && levels[id] == ir::Level::Launch) ranges[id] = rangeOf(module, node, ranges);
  }
}

Verdict TileJudge::judge(const ScoreRect& tile, llvm::ArrayRef<Range> toldRanges) const {
  if (!root) return Verdict::AlwaysTrue;
  for (size_t i = 0; i < told.size(); ++i) ranges[told[i]] = toldRanges[i];
  auto coordinate = [&](ParamKind param) {
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
  };
  for (uint32_t id : steps) {
    const ir::Node& node = (*module)[{id}];
    ranges[id] = node.op == Op::Param ? coordinate(ParamKind(node.attr)) : rangeOf(*module, node, ranges);
  }
  const Range& result = ranges[root->id];
  if (!result.isSingle()) return Verdict::Undecided;
  return result.lo ? Verdict::AlwaysTrue : Verdict::AlwaysFalse;
}

} // namespace attnc::analysis
