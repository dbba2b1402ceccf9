#include "analysis/score_factors.h"

#include "analysis/ir_names.h"
#include "ir/levels.h"
#include "ir/walk.h"

#include <cmath>

namespace attnc::analysis {
namespace {

bool isOdd(Op op) {
  switch (op) {
  case Op::Sin:
  case Op::Tan:
  case Op::Asin:
  case Op::Atan:
  case Op::Sinh:
  case Op::Tanh:
  case Op::TanhApprox:
  case Op::Asinh:
  case Op::Atanh:
  case Op::Erf: return true;
  default: return false;
  }
}

class FactorFinder {
public:
  explicit FactorFinder(const ir::Module& module) : module(module), levels(ir::levels(module)), userOf(module.size()) {
    const std::vector<bool> needed = ir::neededByOutputs(module);
    std::vector<int> uses(module.size(), 0);
    for (uint32_t id = 0; id < module.size(); ++id)
      if (needed[id])
        for (Value operand : module[{id}].operands)
          userOf[operand.id] = uses[operand.id]++ ? std::nullopt : std::optional(Value{id});
    for (const ir::Output& output : module.outputs()) userOf[output.value.id] = std::nullopt;
  }

  ScoreFactors run(Value root) {
    for (uint32_t id = 0; id < module.size(); ++id)
      if (isScore(module, {id})) takeIn({id});
    takeOut(root);
    return std::move(found);
  }

private:
  bool isHead(Value value) const { return levels[value.id] <= Level::Head; }

  /// Follows the score through products and quotients with factors known per head.
  void takeIn(Value score) {
    Value inner = score;
    for (std::optional<Value> user; (user = userOf[inner.id]); inner = *user) {
      const Node& node = module[*user];
      const bool isFirst = node.operands[0] == inner;
      if ((node.op != Op::Mul && !(node.op == Op::Div && isFirst)) || !isHead(node.operands[isFirst ? 1 : 0])) break;
      found.in.push_back({node.operands[isFirst ? 1 : 0], node.op == Op::Div, node.line});
    }
    found.inner = inner;
  }

  /// Takes the factor out of the root, if the root is a product with one. What is left becomes `body`.
  void takeOut(Value root) {
    const Node& product = module[root];
    found.body = root;
    if (product.op != Op::Mul || root == found.inner) return;
    const bool isFirst = isHead(product.operands[0]);
    const Value factor = product.operands[isFirst ? 0 : 1], body = product.operands[isFirst ? 1 : 0];
    if (!isHead(factor) || isHead(body)) return;
    const bool isPositive = module.isConst(factor) && std::isnormal(module.f32(factor)) && module.f32(factor) > 0;
    if (!isPositive && !(isOdd(module[body].op) && module[body].operands[0] == found.inner)) return;
    found.out = {factor, false, product.line};
    found.signUnknown = !isPositive;
    found.body = body;
  }

  const ir::Module& module;
  const std::vector<Level> levels;
  std::vector<std::optional<Value>> userOf; // by Value::id: the only user, if there is only one
  ScoreFactors found;
};

} // namespace

std::optional<ScoreFactors> scoreFactors(const ir::Module& module) {
  const std::optional<Value> root = module.output(ir::kScore);
  if (!root) return std::nullopt;
  ScoreFactors found = FactorFinder(module).run(*root);
  if ((found.in.empty() && !found.out) || found.body == found.inner) return std::nullopt;
  return found;
}

} // namespace attnc::analysis
