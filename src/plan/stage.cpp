#include "plan/stage.h"

#include "support/ceil_div.h"

#include <llvm/Support/MathExtras.h>

#include <algorithm>

namespace attnc::plan {

uint64_t tilesOfRows(const Stage& stage, const LaunchOperands& operands) {
  const int rows = stage.config.blockM, columns = stage.config.blockN;
  const auto times = [](int64_t heads, int64_t tiles) {
    return llvm::SaturatingMultiply(uint64_t(heads), uint64_t(tiles));
  };
  return std::max(rows ? times(operands.problem.qHeads, qTilesOf(operands, rows)) : 0,
                  columns ? times(operands.problem.kvHeads, kvTilesOf(operands, columns)) : 0);
}

int64_t ctasOf(const Stage& stage, const LaunchOperands& operands, const Device& device) {
  return operands.wantsOperands || stage.forCaptures ? stage.ctas(stage, operands, device) : 0;
}

CountCtas persistent(CountCtas count, int each) {
  return [count = std::move(count), each](const Stage& stage, const LaunchOperands& operands, const Device& device) {
    return std::min<int64_t>(count(stage, operands, device), int64_t(each) * device.multiprocessors);
  };
}

int64_t perQTile(const Stage& stage, const LaunchOperands& operands, const Device&) {
  return operands.problem.qHeads * qTilesOf(operands, stage.config.blockM);
}

int64_t perKvTile(const Stage& stage, const LaunchOperands& operands, const Device&) {
  return operands.problem.kvHeads * kvTilesOf(operands, stage.config.blockN);
}

int64_t perKvTileOfEachQHead(const Stage& stage, const LaunchOperands& operands, const Device& device) {
  return perKvTile(stage, operands, device) * sharersOf(operands);
}

int64_t perQRow(const Stage& stage, const LaunchOperands& operands, const Device&) {
  return ceilDiv(operands.q.shape[0] * operands.problem.qHeads * rowsOfQ(operands), stage.config.warps);
}

int64_t perKvRow(const Stage& stage, const LaunchOperands& operands, const Device&) {
  return ceilDiv(operands.k.shape[0] * operands.problem.kvHeads * rowsOfKv(operands), stage.config.warps);
}

int64_t perMaskRow(const Stage&, const LaunchOperands& operands, const Device&) {
  const BlockMaskShape& shape = operands.lists->shape;
  return shape.batch * shape.heads * shape.qBlocks();
}

int64_t perMaskColumn(const Stage& stage, const LaunchOperands& operands, const Device&) {
  const BlockMaskShape& shape = operands.lists->shape;
  return ceilDiv(shape.batch * shape.heads * shape.kvBlocks(), stage.config.warps);
}

} // namespace attnc::plan
