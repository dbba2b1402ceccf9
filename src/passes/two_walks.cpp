#include "passes/two_walks.h"

#include "ir/import.h"
#include "ir/reductions.h"
#include "passes/ir_names.h"
#include "passes/output_gradients.h"
#include "passes/pipeline.h"
#include "support/try.h"

#include <limits>

namespace attnc::passes {

static Expected<ir::Module> simplified(ir::Module module) {
  std::vector<Pass> order;
  for (const char* name : {"fold-constants", "simplify", "cse", "dce"}) order.push_back(*findPass(name));
  ATTNC_TRY(runPasses(module, order, {}));
  return module;
}

Expected<ir::Module> firstWalk(const ir::Module& module) {
  ir::Module first = module;
  first.dropOutput(ir::kProbWeight);
  return simplified(std::move(first));
}

Expected<ir::Module> secondWalk(const ir::Module& module) {
  ir::Module second = module;
  ATTNC_TRY_AS(lse, loadAtScore(second, ir::kLseTensor.str(), ir::Kept::Queries));
  ATTNC_TRY_AS(import, ir::Import::into(second, module));
  const auto f32 = [&](Op op, llvm::ArrayRef<Value> operands) { return second.make(op, Type::F32, operands); };
  const Value score = module.output(ir::kScore).value_or(second.param(ParamKind::Score));
  // lse is rounded, so the difference may be above 0, and the weight of a row's only key above 1.
  const Value prob = f32(Op::Exp, {f32(Op::Min, {f32(Op::Sub, {score, *lse}), second.constF32(0)})});
  const Value weight = import->copy(*module.output(ir::kProbWeight), ParamKind::Prob, prob);
  const Value lives =
      second.make(Op::Ne, Type::Bool, {score, second.constF32(-std::numeric_limits<float>::infinity())});
  for (const ir::OutputRole& role : {ir::kProbWeight, ir::kSink}) second.dropOutput(role);
  ir::dropReductions(second);
  second.setOutput(ir::kScore, f32(Op::Select, {lives, weight, second.constF32(0)}));
  second.setOutput(ir::kIsWeight, second.constBool(true));
  return simplified(std::move(second));
}

} // namespace attnc::passes
