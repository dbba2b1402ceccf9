#include "passes/derive.h"

#include "support/try.h"

#include <vector>

namespace attnc::passes {

Status deriveForKernels(ir::Module& module, Algebra algebra, const PipelineOptions& options) {
  using LowRank = Algebra::LowRank;
  std::vector<Pass> order;
  if (algebra.lowRank != LowRank::Kept) {
    ATTNC_TRY(runPasses(module, {*findPass("derive-low-rank")}, options));
    if (algebra.lowRank == LowRank::Left) module.dropOutput(ir::kQFactor), module.dropOutput(ir::kKvFactor);
  }
  if (algebra.lowRank == LowRank::Factors) {
    module.setOutput(ir::kScore, module.param(ir::ParamKind::Score));
    for (const ir::OutputRole& role : {ir::kMask, ir::kDScore, ir::kProbFactor, ir::kProbWeight, ir::kDProb, ir::kSink})
      module.dropOutput(role);
    return {};
  }
  if (module.output(ir::kIsWeight)) algebra.scale = algebra.rowShift = false;
  if (algebra.drops) order.push_back(*findPass("derive-drops"));
  if (algebra.scale) order.push_back(*findPass("derive-scale"));
  if (algebra.rowShift)
    order.push_back(*findPass("derive-row-shift")); // natural units, which only derive-scale changes
  if (algebra.kvBounds) order.push_back(*findPass("derive-kv-bounds"));
  return runPasses(module, order, options);
}

} // namespace attnc::passes
