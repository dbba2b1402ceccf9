#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnc::plan {

bool sumsDiagonals(const Plan& plan) {
  return std::any_of(plan.stages.begin(), plan.stages.end(),
                     [](const Stage& stage) { return stage.config.sumsDiagonals.value_or(false); });
}

const Stage& walkingStage(const Plan& plan) {
  const auto walks = [&](const Stage& stage) {
    return stage.config.blockN > 0 && !stage.reduces && stage.walksSecond == plan.bindsLse;
  };
  const auto found = std::find_if(plan.stages.begin(), plan.stages.end(), walks);
  return found == plan.stages.end() ? plan.stages.front() : *found;
}

Status checkTileCounts(const Plan& plan, const LaunchOperands& operands) {
  for (const Stage& stage : plan.stages)
    if (const uint64_t tiles = stage.tiles(stage, operands); tiles > uint64_t(kMostTiles))
      return Error::environment(
          fmt::format("{} tiles of all heads and batch entries are more than a kernel counts, {}", tiles, kMostTiles),
          "split the batch");
  return {};
}

} // namespace attnc::plan
