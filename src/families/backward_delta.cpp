#include "families/backward_delta.h"

#include <llvm/ADT/STLExtras.h>

namespace attnc::plan {

static size_t deltaBytes(const LaunchOperands& operands) {
  return sizeof(float) * size_t(operands.q.shape[0]) * size_t(operands.problem.qHeads) * size_t(rowsOfQ(operands));
}

static constexpr int kDeltaRows = 64;       // rows of q
static constexpr size_t kCounterBytes = 16; // of LargeRows, rounded up to align the bytes after them

BackwardParams backwardParams(const LaunchOperands& operands, const WorkspaceView& workspace) {
  BackwardParams p = backwardParams(operands);
  p.delta = static_cast<float*>(workspace.at(Use::Delta));
  p.row_sums = static_cast<float*>(workspace.at(Use::RowSums));
  p.large_rows.counters = static_cast<int*>(workspace.at(Use::LargeRows));
  p.large_rows.chunks = static_cast<unsigned char*>(workspace.at(Use::LargeRows)) + kCounterBytes;
  p.diagonals = static_cast<float*>(workspace.at(Use::DiagonalSums));
  return p;
}

static size_t largeRowBytes(const LaunchOperands& operands) {
  return kCounterBytes + size_t(operands.problem.qHeads) * size_t(qTilesOf(operands, kDeltaRows)) * (kDeltaRows / 32);
}

static constexpr const char* kTemplate = "backward_delta.cu";

Expected<ParameterBlock> backwardBlock(const Stage&, const LaunchOperands& operands, const Device&,
                                       const WorkspaceView& workspace) {
  return ParameterBlock(backwardParams(operands, workspace));
}

Stage& addDelta(Plan& plan, const Request& request) {
  const auto isDelta = [](const Stage& stage) { return stage.templateName == kTemplate; };
  if (auto at = llvm::find_if(plan.stages, isDelta); at != plan.stages.end()) return *at;
  plan.stages.push_back({.templateName = kTemplate,
                         .entry = "attnc_backward_delta",
                         .config = configOf(request.options, {kDeltaRows, 0, 4}),
                         .algebra = algebraFor(request.options.dtype),
                         .threads = 128,
                         .ctas = perQTile,
                         .parameters = backwardBlock});
  plan.workspace.push_back(deltas());
  return plan.stages.back();
}

WorkspaceUse deltas(Use use) { return {.use = use, .bytes = deltaBytes}; }

WorkspaceUse rowSums() { return {.use = Use::RowSums, .bytes = deltaBytes}; }

void addLargeRows(Plan& plan, const Request& request) {
  plan.stages.push_back({.templateName = "backward_large.cu",
                         .entry = "attnc_backward_large",
                         .config = configOf(request.options, {kDeltaRows, 128, 8}),
                         .forCaptures = true,
                         .threads = 256,
                         .ctas = persistent(perQTile),
                         .parameters = backwardBlock});
  plan.workspace.push_back(rowSums());
  plan.workspace.push_back({.use = Use::LargeRows, .bytes = largeRowBytes});
}

} // namespace attnc::plan
