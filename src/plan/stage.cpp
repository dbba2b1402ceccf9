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

} // namespace attnc::plan

#include "templates/host/stages.h"
