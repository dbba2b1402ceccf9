#include "ir/prob_factor.h"

#include "ir/import.h"
#include "ir/walk.h"

#include <llvm/ADT/DenseMap.h>

namespace attnc::ir {
namespace {

class Factors {
public:
  explicit Factors(Module& module) : module(module), params(paramsOf(module)) {}

  std::optional<Value> of(Value value) {
    if (const auto found = known.find(value.id); found != known.end()) return found->second;
    const std::optional<Value> factor = compute(value);
    known.try_emplace(value.id, factor);
    return factor;
  }

private:
  bool depends(Value value) const { return params[value.id].contains(ParamKind::Score); }
  bool isNumber(Value value, float number) const {
    return module.isConst(value) && module[value].type == Type::F32 && module.f32(value) == number;
  }

  std::optional<Value> compute(Value value) {
    if (isScore(module, value)) return module.constF32(1);
    if (!depends(value)) return isNumber(value, 0) ? std::optional(value) : std::nullopt;
    const Node node = module[value];
    const auto made = [&](llvm::ArrayRef<Value> operands) {
      return module.make(node.op, Type::F32, operands, 0, node.line);
    };
    switch (node.op) {
    case Op::Neg: {
      const std::optional<Value> x = of(node.operands[0]);
      return x ? std::optional(made({*x})) : std::nullopt;
    }
    case Op::Add:
    case Op::Sub: {
      const std::optional<Value> x = of(node.operands[0]), y = of(node.operands[1]);
      return x && y ? std::optional(made({*x, *y})) : std::nullopt;
    }
    case Op::Mul:
    case Op::Div: {
      const bool isFirst = depends(node.operands[0]);
      const Value other = node.operands[isFirst ? 1 : 0];
      if (depends(other) || (node.op == Op::Div && !isFirst)) return std::nullopt;
      const std::optional<Value> x = of(node.operands[isFirst ? 0 : 1]);
      if (!x) return std::nullopt;
      return node.op == Op::Mul && isNumber(*x, 1) ? other : made({*x, other});
    }
    case Op::Select: {
      if (depends(node.operands[0])) return std::nullopt;
      const std::optional<Value> x = of(node.operands[1]), y = of(node.operands[2]);
      return x && y ? std::optional(made({node.operands[0], *x, *y})) : std::nullopt;
    }
    default: return std::nullopt;
    }
  }

  Module& module;
  const std::vector<ParamSet> params; // of the values before any factor is made
  llvm::DenseMap<uint32_t, std::optional<Value>> known;
};

} // namespace

std::optional<Value> probFactor(Module& module, Value value) { return Factors(module).of(value); }

void setProb(Module& module, Value value) {
  if (const std::optional<Value> factor = probFactor(module, value)) return module.setOutput(kProbFactor, *factor);
  const Module from = module;
  Import import = *Import::into(module, from); // the same declarations
  module.setOutput(kProbWeight, import.copy(value, ParamKind::Score, module.param(ParamKind::Prob)));
}

/// Returns the weight of a score: that of each choice, and 0 for a written -inf.
static Value weightOf(Module& module, Import& import, Value weight, Value score) {
  const Node node = module[score];
  if (module.isConst(score) && module.f32(score) == -std::numeric_limits<float>::infinity()) return module.constF32(0);
  if (node.op != Op::Select) return import.copy(weight, ParamKind::Score, score);
  const Value a = weightOf(module, import, weight, node.operands[1]),
              b = weightOf(module, import, weight, node.operands[2]);
  return module.make(Op::Select, Type::F32, {node.operands[0], a, b}, 0, node.line);
}

void composeWeight(Module& module) {
  const std::optional<Value> weight = module.output(kWeight);
  if (!weight) return;
  const Module from = module;
  Import import = *Import::into(module, from); // the same declarations
  const Value score = module.output(kScore).value_or(module.param(ParamKind::Score));
  module.dropOutput(kWeight);
  module.setOutput(kScore, weightOf(module, import, *weight, score));
  module.setOutput(kIsWeight, module.constBool(true));
}

} // namespace attnc::ir
