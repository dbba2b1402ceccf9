// In: a module after the passes. Out: factors known per head, moved out of the per-score computation: score_mod =
// scale_out * f(scale_in * score), with f as the score.
//
//   score = @cap * tanh(%score / @cap)      =>   score = tanh(%score), scale_in = 1 / @cap, scale_out = @cap
//
// A kernel multiplies the softmax scale by scale_in and the factor of its exponential by scale_out, once per tile. So a
// soft cap costs only the tanh per score. scale_out is positive: scale_in takes the sign of a factor of unknown sign,
// and a factor of 0 becomes 2^-126.
#include "analysis/score_factors.h"
#include "passes/ir_names.h"
#include "passes/pass.h"
#include "passes/rebuild.h"

namespace attnc::passes {
namespace {

/// Rebuilds `body` with the score in place of `inner`.
Value withScoreFor(ir::Module& module, std::optional<Value> inner, Value body) {
  std::vector<Value> now;
  for (uint32_t id = 0; id <= body.id; ++id) {
    ir::Node node = module[{id}];
    if (Value{id} == inner) {
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

} // namespace

Status deriveScale(ir::Module& module, const PassContext&) {
  if (module.output(ir::kScaleIn) || module.output(ir::kScaleOut)) return {};
  const std::optional<analysis::ScoreFactors> factors = analysis::scoreFactors(module);
  if (!factors) return {};
  std::optional<Value> in;
  for (const auto& [factor, divides, line] : factors->in) {
    if (divides)
      in = module.make(Op::Div, Type::F32, {in ? *in : module.constF32(1), factor}, 0, line);
    else
      in = in ? module.make(Op::Mul, Type::F32, {*in, factor}, 0, line) : factor;
  }
  if (factors->out) {
    const auto& [factor, divides, line] = *factors->out;
    Value out = factor;
    if (factors->signUnknown) {
      if (!in) in = module.constF32(1);
      const Value isNegative = module.make(Op::Lt, Type::Bool, {factor, module.constF32(0)}, 0, line);
      const Value minusIn = module.make(Op::Neg, Type::F32, {*in}, 0, line);
      in = module.make(Op::Select, Type::F32, {isNegative, minusIn, *in}, 0, line);
      const Value magnitude = module.make(Op::Abs, Type::F32, {factor}, 0, line);
      out = module.make(Op::Max, Type::F32, {magnitude, module.constF32(0x1p-126f)}, 0, line);
    }
    module.setOutput(ir::kScaleOut, out);
  }
  if (in) module.setOutput(ir::kScaleIn, *in);
  module.setOutput(ir::kScore, withScoreFor(module, factors->inner, factors->body));
  return {};
}

} // namespace attnc::passes
