#include "plan/backward_delta.h"

#include <llvm/ADT/STLExtras.h>

namespace attnc::plan {

static constexpr const char* kTemplate = "backward_delta.cu";

static size_t deltaBytes(const LaunchOperands& operands) {
  return sizeof(float) * size_t(operands.q.shape[0]) * size_t(operands.problem.qHeads) * size_t(rowsOfQ(operands));
}

Expected<ParameterBlock> backwardBlock(const Stage&, const LaunchOperands& operands, const Device&,
                                       const WorkspaceView& workspace) {
  return ParameterBlock(backwardParams(operands, static_cast<float*>(workspace.at(Use::Delta))));
}

Stage& addDelta(Plan& plan, const Request& request) {
  const auto isDelta = [](const Stage& stage) { return stage.templateName == kTemplate; };
  if (auto at = llvm::find_if(plan.stages, isDelta); at != plan.stages.end()) return *at;
  plan.stages.push_back({.templateName = kTemplate,
                         .entry = "attnc_backward_delta",
                         .config = configOf(request.options, {64, 0, 4}),
                         .algebra = algebraFor(request.options.dtype),
                         .threads = 128,
                         .grid = Grid::QTiles,
                         .parameters = backwardBlock});
  plan.workspace.push_back({.use = Use::Delta, .bytes = deltaBytes});
  return plan.stages.back();
}

} // namespace attnc::plan
