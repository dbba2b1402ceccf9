// In: any module. Out: operands of commutative operations in one order (leaves first, constants last), so that a + b
// and b + a become one node. Nodes with equal content are one node already (Module::make).
//
//   %0 = add i32 %q_idx, %kv_idx     =>   %0 = add i32 %q_idx, %kv_idx
//   %1 = add i32 %kv_idx, %q_idx          (users of %1 use %0)
//
// Not: min and max of f32, whose result for +0 and -0 depends on the order.
#include "passes/pass.h"
#include "passes/rebuild.h"

#include <tuple>

namespace attnc::passes {

Status cse(ir::Module& module, const PassContext&) {
  module = rebuild(module, [](ir::Module& out, const ir::Node& node) {
    ir::Node ordered = node;
    // Leaves are ordered by what they are, not by when they first occur, so printing and reading back keep the order.
    auto rank = [&](ir::Value value) {
      const ir::Node& operand = out[value];
      const bool leaf = isLeaf(operand);
      return std::make_tuple(out.isConst(value), !leaf, leaf ? int64_t(operand.op) : 0, leaf ? operand.attr : 0,
                             value.id);
    };
    if (isCommutative(node.op) && rank(node.operands[1]) < rank(node.operands[0]))
      std::swap(ordered.operands[0], ordered.operands[1]);
    return keep(out, ordered);
  });
  return {};
}

} // namespace attnc::passes
