#include "api/told_ranges.h"

#include "analysis/operation_count.h"
#include "ir/interpreter.h"
#include "ir/levels.h"
#include "ir/walk.h"

#include <algorithm>
#include <cmath>

namespace attnc {

using analysis::Range;
using ir::Level;
using ir::Op;
using ir::Value;

namespace {

Range rangeOf(ir::Type type, const Number& slot) {
  if (type != ir::Type::F32) return Range::integers(type, slot.integer, slot.integer);
  return std::isnan(slot.real) ? Range::full(type) : Range::reals(slot.real, slot.real);
}

} // namespace

int64_t operationsOf(const ir::Module& module, Value value) {
  const uint64_t count = analysis::countOperations(module, value).total();
  return int64_t(std::min<uint64_t>(count, kMostOperations - 1)) + 1; // even a leaf takes a step
}

std::vector<ToldValue> toldValues(const ir::Module& module) {
  constexpr size_t kMost = 64; // further values stay unknown, which is still correct
  std::vector<ToldValue> told;
  const std::optional<Value> root = module.output(ir::kMask);
  if (!root) return told;
  std::vector<bool> reads(module.size(), false);
  for (uint32_t id = 0; id <= root->id; ++id) {
    reads[id] = module[{id}].op == Op::Load;
    for (Value operand : module[{id}].operands) reads[id] = reads[id] || reads[operand.id];
  }
  const std::vector<Level> levels = ir::levels(module);
  const std::vector<ir::ParamSet> params = ir::paramsOf(module);
  auto isTold = [&](Value value) { return reads[value.id] && levels[value.id] != Level::Element; };
  const std::vector<bool> needed = ir::neededBy(module, *root, isTold);
  for (uint32_t id = root->id + 1; id-- > 0 && told.size() < kMost;) {
    const Value value{id};
    if (!needed[id] || !isTold(value)) continue;
    bool knowsHead = params[id].contains(ir::ParamKind::B) || params[id].contains(ir::ParamKind::H);
    told.push_back({value, levels[id], knowsHead, operationsOf(module, value)});
  }
  return told;
}

ReadingCost readingCost(llvm::ArrayRef<ToldValue> values, const BlockMaskShape& shape) {
  ReadingCost cost;
  for (const ToldValue& told : values) {
    int64_t positions = told.level == Level::Row ? shape.qLen : told.level == Level::Column ? shape.kvLen : 1;
    (told.knowsHead ? cost.head : cost.shared) += told.cost * positions;
  }
  return cost;
}

bool RangePyramid::readDirectly(const ir::Module& module, const ir::Bindings& bindings, Value value, int64_t length,
                                int64_t block) {
  const ir::Node& node = module[value];
  if (node.op != Op::Load || node.operands.size() != 1 || module[node.operands[0]].op != Op::Param) return false;
  const TensorView& view = bindings.tensors[node.attr];
  if (view.dtype != DType::I32 || view.elements() == 0) return false;
  const auto* data = static_cast<const int32_t*>(view.data);
  const int64_t last = view.shape[0] - 1, stride = view.stride[0];
  levels.emplace_back();
  for (int64_t begin = 0; begin < length; begin += block) {
    const int64_t first = std::min(begin, last), end = std::min(std::min(begin + block, length), last + 1);
    int32_t lo = data[first * stride], hi = lo;
    if (stride == 1) { // a loop that compilers vectorize
      for (int64_t at = first; at < end; ++at) lo = std::min(lo, data[at]), hi = std::max(hi, data[at]);
    } else {
      for (int64_t at = first; at < end; ++at)
        lo = std::min(lo, data[at * stride]), hi = std::max(hi, data[at * stride]);
    }
    levels.back().push_back(Range::integers(ir::Type::I32, lo, hi));
  }
  return true;
}

RangePyramid::RangePyramid(const ir::Module& module, const ir::Bindings& bindings, const ToldValue& told,
                           const BlockMaskShape& shape, int64_t b, int64_t h) {
  bool isRow = told.level == Level::Row, isColumn = told.level == Level::Column;
  isSingle = !isRow && !isColumn;
  int64_t length = isRow ? shape.qLen : isColumn ? shape.kvLen : 1;
  int64_t block = isRow ? shape.qBlock : isColumn ? shape.kvBlock : 1;
  if (isSingle || !readDirectly(module, bindings, told.value, length, block)) {
    ir::Evaluator evaluator(module, bindings, told.value);
    std::vector<Range>& blocks = levels.emplace_back();
    for (int64_t begin = 0; begin < length; begin += block) {
      auto at = [&](int64_t position) {
        return rangeOf(evaluator.type(), evaluator.evaluate(0, b, h, isRow ? position : 0, isColumn ? position : 0));
      };
      Range range = at(begin);
      for (int64_t position = begin + 1; position < std::min(begin + block, length); ++position)
        range = analysis::join(range, at(position));
      blocks.push_back(range);
    }
  }
  while (levels.back().size() > 1) {
    const std::vector<Range>& below = levels.back();
    std::vector<Range> above;
    for (size_t i = 0; i < below.size(); i += 2)
      above.push_back(i + 1 < below.size() ? analysis::join(below[i], below[i + 1]) : below[i]);
    levels.push_back(std::move(above));
  }
}

} // namespace attnc
