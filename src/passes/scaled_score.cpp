#include "passes/scaled_score.h"

#include "passes/rebuild.h"

#include <cmath>

namespace attnc::passes {
namespace {

using ir::Level;
using ir::Node;
using ir::Op;
using ir::Type;
using ir::Value;

bool isOdd(Op op) { return op == Op::Tanh || op == Op::TanhApprox || op == Op::Sin || op == Op::Tan || op == Op::Erf; }

class ScoreSplitter {
public:
  ScoreSplitter(ir::Module& module, Value root)
      : module(module), root(root), levels(ir::levels(module)), userOf(module.size()) {
    const std::vector<bool> needed = ir::neededByOutputs(module);
    std::vector<int> uses(module.size(), 0);
    for (uint32_t id = 0; id < module.size(); ++id)
      if (needed[id])
        for (Value operand : module[{id}].operands)
          userOf[operand.id] = uses[operand.id]++ ? std::nullopt : std::optional(Value{id});
    for (const ir::Output& output : module.outputs()) userOf[output.value.id] = std::nullopt;
  }

  /// Moves the output to f.
  bool run(std::optional<Value>& in, std::optional<Value>& out) {
    Value inner = takeIn(in);
    Value body = takeOut(in, out, inner);
    if (!in && !out) return false;
    if (body == inner) return false; // score_mod is a product with the score, one operation as it is
    module.setOutput(ir::kScore, withScoreFor(inner, body));
    return true;
  }

private:
  bool isHead(Value value) const { return levels[value.id] <= Level::Head; }
  Value make(Op op, Value x, Value y) { return module.make(op, Type::F32, {x, y}, 0, line); }

  std::optional<Value> onlyUser(Value value) const {
    return value.id < userOf.size() ? userOf[value.id] : std::nullopt; // the score may be made just now
  }

  /// Follows the score through products and quotients with what heads know; `in` collects these.
  Value takeIn(std::optional<Value>& in) {
    Value inner = module.param(ir::ParamKind::Score);
    for (std::optional<Value> user; (user = onlyUser(inner)); inner = *user) {
      const Node node = module[*user];
      bool isFirst = node.operands[0] == inner;
      if ((node.op != Op::Mul && !(node.op == Op::Div && isFirst)) || !isHead(node.operands[isFirst ? 1 : 0])) break;
      Value factor = node.operands[isFirst ? 1 : 0];
      line = node.line;
      if (node.op == Op::Mul)
        in = in ? make(Op::Mul, *in, factor) : factor;
      else
        in = make(Op::Div, in ? *in : module.constF32(1), factor);
    }
    return inner;
  }

  /// The value below the factor of the root. The sign of the factor goes into `in`.
  Value takeOut(std::optional<Value>& in, std::optional<Value>& out, Value inner) {
    const Node product = module[root];
    if (product.op != Op::Mul || root == inner) return root;
    bool isFirst = isHead(product.operands[0]);
    Value factor = product.operands[isFirst ? 0 : 1], body = product.operands[isFirst ? 1 : 0];
    if (!isHead(factor) || isHead(body)) return root;
    line = product.line;
    if (module.isConst(factor) && std::isnormal(module.f32(factor)) && module.f32(factor) > 0) {
      out = factor;
      return body;
    }
    if (!isOdd(module[body].op) || !(module[body].operands[0] == inner)) return root;
    if (!in) in = module.constF32(1);
    Value isNegative = module.make(Op::Lt, Type::Bool, {factor, module.constF32(0)}, 0, line);
    Value minusIn = module.make(Op::Neg, Type::F32, {*in}, 0, line);
    in = module.make(Op::Select, Type::F32, {isNegative, minusIn, *in}, 0, line);
    out = make(Op::Max, module.make(Op::Abs, Type::F32, {factor}, 0, line), module.constF32(0x1p-126f));
    return body;
  }

  /// `body` anew, with the score in the place of `inner`.
  Value withScoreFor(Value inner, Value body) {
    std::vector<Value> now;
    for (uint32_t id = 0; id <= body.id; ++id) {
      Node node = module[{id}];
      if (id == inner.id) {
        now.push_back(module.param(ir::ParamKind::Score));
        continue;
      }
      bool changes = false;
      for (Value& operand : node.operands) {
        changes = changes || now[operand.id] != operand;
        operand = now[operand.id];
      }
      now.push_back(changes ? keep(module, node) : Value{id});
    }
    return now[body.id];
  }

  ir::Module& module;
  const Value root;
  std::vector<Level> levels;                // of the module as given
  std::vector<std::optional<Value>> userOf; // by Value::id: the only use there is
  uint32_t line = 0;                        // of the mod's text: where the factors stand
};

} // namespace

std::optional<ScaledScore> scaledScore(const ir::Module& module) {
  const std::optional<Value> root = module.output(ir::kScore);
  if (!root) return std::nullopt;
  ScaledScore scaled{module, {}, {}};
  if (!ScoreSplitter(scaled.module, *root).run(scaled.in, scaled.out)) return std::nullopt;
  return scaled;
}

} // namespace attnc::passes
