#include "plan/plan.h"

#include <algorithm>

namespace attnc::plan {

int64_t ctasOf(const Stage& stage, const LaunchOperands& operands, const Device& device) {
  const auto tiles = [&] {
    const ProblemShape& problem = operands.problem;
    const int64_t blockM = stage.config.blockM;
    return problem.batch * problem.qHeads * ((problem.qLen + blockM - 1) / blockM);
  };
  switch (stage.grid) {
  case Grid::QTiles: return tiles();
  case Grid::Persistent: return std::min<int64_t>(tiles(), device.multiprocessors);
  case Grid::MaskRows:
    return operands.lists->shape.batch * operands.lists->shape.heads * operands.lists->shape.qBlocks();
  }
  return 0;
}

} // namespace attnc::plan
