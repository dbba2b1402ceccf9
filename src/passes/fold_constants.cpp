// In: any module. Out: no operation except a load and a random number has only constant operands, and no select has a
// constant condition.
//
//   %0 = mul i32 3, 4     =>   12
//
// f32 constants fold in single precision, as everywhere else. Not: identities (simplify).
#include "ir/semantics.h"
#include "passes/constants.h"
#include "passes/ir_names.h"
#include "passes/pass.h"
#include "passes/rebuild.h"

namespace attnc::passes {

static Number slotOf(const ir::Module& module, Value value) {
  if (module[value].type == Type::F32) return {.real = module.f32(value)};
  return {.integer = module.integer(value)};
}

std::optional<Value> foldNode(ir::Module& module, const ir::Node& node) {
  ir::TypeRule rule = ir::info(node.op).rule;
  if (rule == ir::TypeRule::Leaf || rule == ir::TypeRule::Load || rule == ir::TypeRule::Sum ||
      rule == ir::TypeRule::Grid || rule == ir::TypeRule::Random)
    return std::nullopt;
  if (node.op == Op::Select) {
    if (!module.isConst(node.operands[0])) return std::nullopt;
    return module.integer(node.operands[0]) ? node.operands[1] : node.operands[2];
  }
  for (Value operand : node.operands)
    if (!module.isConst(operand)) return std::nullopt;
  Number first = slotOf(module, node.operands[0]);
  Number second = node.operands.size() > 1 ? slotOf(module, node.operands[1]) : Number{.integer = 0};
  Number result = ir::semantics::apply(node.op, module[node.operands[0]].type, node.type, first, second);
  if (node.type != Type::F32) return module.constant(node.type, result.integer);
  // All NaNs become one bit pattern: the payload is not part of the language.
  return module.constF32(std::isnan(result.real) ? std::numeric_limits<float>::quiet_NaN() : result.real);
}

Status foldConstants(ir::Module& module, const PassContext&) {
  module = rebuild(module, [](ir::Module& out, const ir::Node& node) {
    std::optional<Value> folded = foldNode(out, node);
    return folded ? *folded : keep(out, node);
  });
  return {};
}

} // namespace attnc::passes
