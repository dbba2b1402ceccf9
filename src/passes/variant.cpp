// In: a module and its variants. Out: the module with the number of one of them as a constant; for the rest, with
// comparisons that are false.
//
//   %7 = load i32 which[%b]
//   %8 = eq i32 %7, 0
//   %9 = select bool %8, %0, %6      variant 0   =>   %0
#include "passes/variant.h"

#include "passes/ir_names.h"
#include "passes/pipeline.h"
#include "passes/rebuild.h"
#include "support/try.h"

namespace attnc::passes {

Expected<ir::Module> variantOf(const ir::Module& module, const analysis::Variants& variants, size_t i) {
  const ir::Node& which = module[variants.which];
  const bool isRest = i == variants.numbers.size();
  const auto isWhich = [&](const ir::Module& of, Value value) {
    return of[value].op == which.op && of[value].attr == which.attr &&
           of.isParam(of[value].operands[0], ir::ParamKind::B);
  };
  ir::Module made = rebuild(module, [&](ir::Module& out, const ir::Node& node) {
    if (isRest) {
      const bool asks = node.op == Op::Eq && out[node.operands[0]].op == Op::Load && isWhich(out, node.operands[0]);
      return asks && out.isConst(node.operands[1]) ? out.constBool(false) : keep(out, node);
    }
    const Value kept = keep(out, node);
    return out[kept].op == Op::Load && isWhich(out, kept) ? out.constInt(node.type, variants.numbers[i]) : kept;
  });
  std::vector<Pass> order;
  for (const char* name : {"fold-constants", "simplify", "cse", "levels", "simplify", "cse", "dce"})
    order.push_back(*findPass(name));
  ATTNC_TRY(runPasses(made, order, {}));
  return made;
}

void addVariant(ir::Module& module, const analysis::Variants& variants) {
  Value value = module.constInt(Type::I32, variants.hasRest ? int64_t(variants.numbers.size()) : -1);
  for (size_t i = variants.numbers.size(); i-- > 0;) {
    const Value number = module.constInt(module[variants.which].type, variants.numbers[i]);
    const Value isTaken = module.make(Op::Eq, Type::Bool, {variants.which, number});
    value = module.make(Op::Select, Type::I32, {isTaken, module.constInt(Type::I32, int64_t(i)), value});
  }
  module.setOutput(ir::kVariant, value);
}

} // namespace attnc::passes
