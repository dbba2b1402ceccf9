#include "plan/backward_delta.h"

#include <llvm/ADT/STLExtras.h>

namespace attnc::plan {

static constexpr const char* kTemplate = "backward_delta.cu";

static size_t deltaBytes(const LaunchOperands& operands) {
  return sizeof(float) * size_t(operands.q.shape[0]) * size_t(operands.problem.qHeads) * size_t(rowsOfQ(operands));
}

static constexpr int kLargeTile = 128; // rows of q, and of k and v

BackwardParams backwardParams(const LaunchOperands& operands, const WorkspaceView& workspace) {
  BackwardParams p = backwardParams(operands);
  p.delta = static_cast<float*>(workspace.at(Use::Delta));
  p.row_sums = static_cast<float*>(workspace.at(Use::RowSums));
  p.large_tiles = static_cast<int*>(workspace.at(Use::LargeTiles));
  p.diagonals = static_cast<float*>(workspace.at(Use::DiagonalSums));
  return p;
}

Expected<ParameterBlock> backwardBlock(const Stage&, const LaunchOperands& operands, const Device&,
                                       const WorkspaceView& workspace) {
  return ParameterBlock(backwardParams(operands, workspace));
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

WorkspaceUse rowSums() { return {.use = Use::RowSums, .bytes = deltaBytes}; }

static size_t largeTileBytes(const LaunchOperands& operands) {
  return sizeof(int) * size_t(operands.problem.qHeads) * size_t(qTilesOf(operands, kLargeTile));
}

void addLargeRows(Plan& plan, const Request& request) {
  for (auto [name, grid] : {std::pair("backward_large_q", Grid::QTiles), {"backward_large_kv", Grid::KvTiles}})
    plan.stages.push_back({.templateName = std::string(name) + ".cu",
                           .entry = std::string("attnc_") + name,
                           .config = configOf(request.options, {kLargeTile, kLargeTile, 8}),
                           .forCaptures = grid == Grid::QTiles,
                           .threads = 256,
                           .grid = grid,
                           .parameters = backwardBlock});
  plan.workspace.push_back(rowSums());
  plan.workspace.push_back({.use = Use::LargeTiles, .bytes = largeTileBytes});
}

} // namespace attnc::plan
