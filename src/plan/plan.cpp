#include "plan/plan.h"

#include "plan/decode_parts.h"
#include "plan/grid_plan.h"

#include <fmt/format.h>
#include <llvm/Support/MathExtras.h>

#include <algorithm>

namespace attnc::plan {

bool sumsDiagonals(const Plan& plan) {
  return std::any_of(plan.stages.begin(), plan.stages.end(),
                     [](const Stage& stage) { return stage.config.sumsDiagonals.value_or(false); });
}

const Stage& walkingStage(const Plan& plan) {
  const auto walks = [](const Stage& stage) { return stage.config.blockN > 0; };
  const auto found = std::find_if(plan.stages.begin(), plan.stages.end(), walks);
  return found == plan.stages.end() ? plan.stages.front() : *found;
}

int64_t ctasOf(const Stage& stage, const LaunchOperands& operands, const Device& device) {
  const auto tiles = [&] {
    return operands.problem.qHeads * qTilesOf(operands, stage.config.blockM);
  };
  const auto ceilDiv = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const ProblemShape& problem = operands.problem;
  const int64_t kvRows = operands.k.shape[0] * problem.kvHeads * rowsOfKv(operands);
  const int64_t kvTiles = problem.kvHeads * kvTilesOf(operands, std::max(stage.config.blockN, 1));
  const auto kvBoxes = [&] { return operands.k.shape[0] * problem.kvHeads * keyBoxesOf(stage, operands); };
  if (!operands.wantsOperands && !stage.forCaptures) return 0;
  switch (stage.grid) {
  case Grid::KvTiles: return kvTiles;
  case Grid::KvBoxes: return kvBoxes();
  case Grid::PersistentKvBoxes: return std::min<int64_t>(kvBoxes(), device.multiprocessors);
  case Grid::KvTilesTwice: return 2 * kvTiles;
  case Grid::QRows: return ceilDiv(operands.q.shape[0] * problem.qHeads * rowsOfQ(operands), stage.config.warps);
  case Grid::KvRows: return ceilDiv(kvRows, stage.config.warps);
  case Grid::QTiles: return tiles();
  case Grid::CaptureTiles: return operands.loopsBatches ? tiles() / problem.batch : tiles();
  case Grid::Diagonals:
    return problem.qLen == 0 || problem.kvLen == 0
               ? 0
               : problem.batch * problem.qHeads * ceilDiv(problem.qLen + problem.kvLen, stage.threads);
  case Grid::CaptureElements: {
    const CaptureOutput& capture = operands.captureOutputs[size_t(stage.capture)];
    return capture.isDirect ? 0 : ceilDiv(capture.elements, stage.threads);
  }
  case Grid::StepWords:
    return packedTiles(operands, stage.config.blockM) * stepWords(operands, stage.config.blockN);
  case Grid::Parts:
    return std::min<int64_t>(mostParts(operands, stage.config.blockM), int64_t(device.multiprocessors) * stage.ctasAtOnce);
  case Grid::Boxes: return problem.batch * problem.qHeads * queryBoxesOf(stage, operands);
  case Grid::PersistentBoxes:
    return std::min<int64_t>(problem.batch * problem.qHeads * queryBoxesOf(stage, operands), device.multiprocessors);
  case Grid::Persistent: return std::min<int64_t>(tiles(), device.multiprocessors);
  case Grid::NewRows: return problem.batch * problem.kvHeads * ceilDiv(problem.qLen, stage.config.blockM);
  case Grid::MaskRows:
    return operands.lists->shape.batch * operands.lists->shape.heads * operands.lists->shape.qBlocks();
  case Grid::MaskColumns:
    return ceilDiv(operands.lists->shape.batch * operands.lists->shape.heads * operands.lists->shape.kvBlocks(),
                   stage.config.warps);
  }
  return 0;
}

/// Returns the tiles of q, or of k and v if these are more, that a stage's kernel numbers. May be 2^64 - 1 for problems
/// that fit into no memory.
static uint64_t tilesOf(const Stage& stage, const LaunchOperands& operands) {
  const ProblemShape& problem = operands.problem;
  const auto times = [](int64_t heads, int64_t tiles) {
    return llvm::SaturatingMultiply(uint64_t(heads), uint64_t(tiles));
  };
  const int rows = stage.config.blockM, columns = stage.config.blockN;
  const bool walksBoxes = stage.grid == Grid::Boxes || stage.grid == Grid::PersistentBoxes ||
                          stage.grid == Grid::KvBoxes || stage.grid == Grid::PersistentKvBoxes;
  if (stage.grid == Grid::Parts || stage.grid == Grid::StepWords) // a ragged batch's rows are numbered as well
    return uint64_t(std::max(packedTiles(operands, rows), operands.cuSeqlensQ ? packedRows(operands) : 0));
  if (walksBoxes && !operands.grids) return 0; // unknown
  const bool isOfQueries = stage.grid == Grid::Boxes || stage.grid == Grid::PersistentBoxes;
  if (walksBoxes)
    return isOfQueries ? times(problem.qHeads, problem.batch * queryBoxesOf(stage, operands))
                       : times(problem.kvHeads, operands.k.shape[0] * keyBoxesOf(stage, operands));
  return std::max(rows ? times(problem.qHeads, qTilesOf(operands, rows)) : 0,
                  columns ? times(problem.kvHeads, kvTilesOf(operands, columns)) : 0);
}

Status checkTileCounts(const Plan& plan, const LaunchOperands& operands) {
  for (const Stage& stage : plan.stages)
    if (const uint64_t tiles = tilesOf(stage, operands); tiles > uint64_t(kMostTiles))
      return Error::environment(
          fmt::format("{} tiles of all heads and batch entries are more than a kernel counts, {}", tiles, kMostTiles),
          "split the batch");
  return {};
}

} // namespace attnc::plan
