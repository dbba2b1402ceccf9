#include "analysis/distance_term.h"

#include "analysis/ir_names.h"
#include "ir/levels.h"
#include "ir/walk.h"

namespace attnc::analysis {
namespace {

constexpr size_t kMaxDepth = 64; // of the sum

class TermFinder {
public:
  explicit TermFinder(const ir::Module& module) : module(module), levels(ir::levels(module)), uses(module.size(), 0) {
    const std::vector<bool> needed = ir::neededByOutputs(module);
    for (uint32_t id = 0; id < module.size(); ++id)
      if (needed[id])
        for (Value operand : module[{id}].operands) ++uses[operand.id];
    for (const ir::Output& output : module.outputs()) ++uses[output.value.id];
  }

  /// Searches the sum for the term and records the path to it.
  bool find(Value value, bool negative) {
    if (!isOnce(value)) return false;
    if (levels[value.id] == Level::Element && isTerm(value)) {
      found.isSubtracted = negative;
      return true;
    }
    const Node& node = module[value];
    if ((node.op != Op::Add && node.op != Op::Sub) || found.path.size() == kMaxDepth) return false;
    for (unsigned i : {0u, 1u}) {
      found.path.push_back({value, i});
      if (find(node.operands[i], negative != (node.op == Op::Sub && i == 1))) return true;
      found.path.pop_back();
    }
    return false;
  }

  DistanceTerm found;

private:
  bool isOnce(Value value) const { return uses[value.id] == 1; }

  /// Whether the value is f32(param), used once.
  bool isPosition(Value value, ParamKind param) const {
    const Node& node = module[value];
    return node.op == Op::Cast && node.type == Type::F32 && isOnce(value) && module.isParam(node.operands[0], param);
  }

  /// Whether the value is s * (f32(kv_idx) - f32(q_idx)), also without s or with the positions swapped.
  bool isTerm(Value value) {
    const Node* node = &module[value];
    found.slope.reset();
    if (node->op == Op::Mul) {
      unsigned at = levels[node->operands[0].id] <= Level::Head ? 0 : 1;
      const Value factor = node->operands[at];
      if (levels[factor.id] > Level::Head || !isOnce(node->operands[1 - at])) return false;
      found.slope = factor;
      node = &module[node->operands[1 - at]];
    }
    if (node->op != Op::Sub || node->type != Type::F32) return false;
    Value x = node->operands[0], y = node->operands[1];
    found.isReversed = isPosition(x, ParamKind::QIdx);
    found.kv = found.isReversed ? y : x;
    found.q = found.isReversed ? x : y;
    found.line = node->line;
    return isPosition(found.kv, ParamKind::KvIdx) && isPosition(found.q, ParamKind::QIdx);
  }

  const ir::Module& module;
  const std::vector<Level> levels;
  std::vector<int> uses; // by Value::id, including uses by outputs
};

} // namespace

std::optional<DistanceTerm> distanceTerm(const ir::Module& module) {
  const std::optional<Value> root = module.output(ir::kScore);
  if (!root) return std::nullopt;
  TermFinder finder(module);
  if (!finder.find(*root, false)) return std::nullopt;
  return std::move(finder.found);
}

} // namespace attnc::analysis
