// In: any module. Out: operands of commutative operations in one order (leaves first, constants last), so that a + b
// and b + a become one node; nodes with the same content are one already (Module::make).
//
//   %0 = add i32 %q_idx, %kv_idx     =>   %0 = add i32 %q_idx, %kv_idx
//   %1 = add i32 %kv_idx, %q_idx          (users of %1 use %0)
//
// Not: min and max of f32, whose result for +0 and -0 depends on the order.
#include "passes/pass.h"
#include "passes/rebuild.h"

#include <tuple>

namespace attnc::passes {

using ir::Op;

static bool isCommutative(Op op, ir::Type type) {
  switch (op) {
  case Op::Add:
  case Op::Mul:
  case Op::And:
  case Op::Or:
  case Op::Xor:
  case Op::Eq:
  case Op::Ne: return true;
  case Op::Min:
  case Op::Max: return type != ir::Type::F32;
  default: return false; // a list of the few, not a case analysis over all operations
  }
}

Status cse(ir::Module& module, const PassContext&) {
  module = rebuild(module, [](ir::Module& out, const ir::Node& node) {
    ir::Node ordered = node;
    // Leaves by what they are, not by when they were first met: so the order survives printing and reading back.
    auto rank = [&](ir::Value value) {
      const ir::Node& operand = out[value];
      bool isLeaf = ir::info(operand.op).rule == ir::TypeRule::Leaf;
      return std::make_tuple(out.isConst(value), !isLeaf, isLeaf ? int64_t(operand.op) : 0, isLeaf ? operand.attr : 0,
                             value.id);
    };
    if (isCommutative(node.op, node.type) && rank(node.operands[1]) < rank(node.operands[0]))
      std::swap(ordered.operands[0], ordered.operands[1]);
    return keep(out, ordered);
  });
  return {};
}

} // namespace attnc::passes
