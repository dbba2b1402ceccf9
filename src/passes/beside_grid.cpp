#include "passes/beside_grid.h"

#include "passes/mask_where.h"

namespace attnc::passes {

BesideGrid besideGrid(const ir::Module& module) {
  const analysis::GridsUsed grids = analysis::gridsUsed(module);
  const auto judge = [&](bool isQueryIn, bool isKeyIn) {
    if (!module.output(ir::kMask)) return Beside::All;
    const Expected<ir::Module> there = maskWhere(module, grids, isQueryIn, isKeyIn);
    if (!there) return Beside::Asks;
    const ir::Value mask = *there->output(ir::kMask);
    if (!there->isConst(mask)) return Beside::Asks;
    return there->integer(mask) ? Beside::All : Beside::None;
  };
  return {judge(true, false), judge(false, true), judge(false, false)};
}

} // namespace attnc::passes
