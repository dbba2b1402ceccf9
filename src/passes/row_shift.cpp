#include "passes/row_shift.h"

#include "passes/rebuild.h"

namespace attnc::passes {
namespace {

using ir::Level;
using ir::Node;
using ir::Op;
using ir::ParamKind;
using ir::Type;
using ir::Value;

constexpr size_t kMaxDepth = 64; // of the sum

class RowSplitter {
public:
  RowSplitter(const ir::Module& module, Value root)
      : module(module), root(root), levels(ir::levels(module)), uses(module.size(), 0) {
    const std::vector<bool> needed = ir::neededByOutputs(module);
    for (uint32_t id = 0; id < module.size(); ++id)
      if (needed[id])
        for (Value operand : module[{id}].operands) ++uses[operand.id];
    for (const ir::Output& output : module.outputs()) ++uses[output.value.id];
  }

  std::optional<RowShift> run() {
    if (!find(root, false)) return std::nullopt;
    RowShift result{module, {}, {}, {}};
    ir::Module& out = result.module;
    auto product = [&](Value x, Value y) { return out.make(Op::Mul, Type::F32, {x, y}, 0, line); };
    auto negated = [&](Value x) { return out.make(Op::Neg, Type::F32, {x}, 0, line); };
    Value factor = slope ? *slope : out.constF32(1);
    result.slope = isReversed ? negated(factor) : factor;
    result.column = product(result.slope, kv);
    result.shift = product(isSubtracted ? result.slope : negated(result.slope), q);
    Value now = result.column;
    while (!path.empty()) {
      auto [user, operand] = path.pop_back_val();
      Node node = module[user];
      node.operands[operand] = now;
      now = keep(out, node);
    }
    out.setOutput(ir::kScore, now);
    return result;
  }

private:
  bool isOnce(Value value) const { return uses[value.id] == 1; }

  /// Whether the value is f32(param), used once.
  bool isPosition(Value value, ParamKind param) const {
    const Node& node = module[value];
    if (node.op != Op::Cast || node.type != Type::F32 || !isOnce(value)) return false;
    const Node& from = module[node.operands[0]];
    return from.op == Op::Param && ParamKind(from.attr) == param;
  }

  /// s * (f32(kv_idx) - f32(q_idx)), also without s or the other way round.
  bool isPenalty(Value value) {
    const Node* node = &module[value];
    std::optional<Value> factor;
    if (node->op == Op::Mul) {
      unsigned at = levels[node->operands[0].id] <= Level::Head ? 0 : 1;
      factor = node->operands[at];
      if (levels[factor->id] > Level::Head || !isOnce(node->operands[1 - at])) return false;
      node = &module[node->operands[1 - at]];
    }
    if (node->op != Op::Sub || node->type != Type::F32) return false;
    Value x = node->operands[0], y = node->operands[1];
    isReversed = isPosition(x, ParamKind::QIdx);
    kv = isReversed ? y : x;
    q = isReversed ? x : y;
    slope = factor;
    line = node->line;
    return isPosition(kv, ParamKind::KvIdx) && isPosition(q, ParamKind::QIdx);
  }

  /// Looks through the sum for the penalty, and remembers the way to it.
  bool find(Value value, bool negative) {
    if (!isOnce(value)) return false;
    if (levels[value.id] == Level::Element && isPenalty(value)) {
      isSubtracted = negative;
      return true;
    }
    const Node& node = module[value];
    if ((node.op != Op::Add && node.op != Op::Sub) || path.size() == kMaxDepth) return false;
    for (unsigned i : {0u, 1u}) {
      path.push_back({value, i});
      if (find(node.operands[i], negative != (node.op == Op::Sub && i == 1))) return true;
      path.pop_back();
    }
    return false;
  }

  const ir::Module& module;
  const Value root;
  std::vector<Level> levels;
  std::vector<int> uses;                                 // by Value::id, outputs among them
  llvm::SmallVector<std::pair<Value, unsigned>, 4> path; // from the root to the penalty: a sum, and which operand
  std::optional<Value> slope;
  Value kv, q;
  bool isReversed = false, isSubtracted = false;
  uint32_t line = 0;
};

} // namespace

std::optional<RowShift> rowShift(const ir::Module& module) {
  const std::optional<Value> root = module.output(ir::kScore);
  if (!root) return std::nullopt;
  return RowSplitter(module, *root).run();
}

} // namespace attnc::passes
