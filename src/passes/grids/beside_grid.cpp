#include "passes/grids/beside_grid.h"

#include "passes/mask_where.h"

namespace attnc::passes {

namespace {

constexpr GridSide kOn[] = {GridSide::On};

/// Returns the sides on which a grid can have off-grid tokens.
llvm::SmallVector<GridSide, 2> sidesOf(const ir::Grid& grid) {
  llvm::SmallVector<GridSide, 2> sides;
  if (grid.before != ir::Grid::Number()) sides.push_back(GridSide::Before);
  if (!grid.hasRest()) sides.push_back(GridSide::Behind);
  return sides;
}

} // namespace

BesideGrid besideGrid(const ir::Module& module) {
  const analysis::GridsUsed grids = analysis::gridsUsed(module);
  const auto judgeAt = [&](GridSide query, GridSide key) {
    const Expected<ir::Module> there = maskWhere(module, grids, query, key);
    if (!there) return Beside::Asks;
    const ir::Value mask = *there->output(ir::kMask);
    if (!there->isConst(mask)) return Beside::Asks;
    return there->integer(mask) ? Beside::All : Beside::None;
  };
  const auto judge = [&](llvm::ArrayRef<GridSide> queries, llvm::ArrayRef<GridSide> keys) {
    if (!module.output(ir::kMask)) return Beside::All;
    std::optional<Beside> all;
    for (GridSide query : queries)
      for (GridSide key : keys) {
        const Beside one = judgeAt(query, key);
        all = all.value_or(one) == one ? one : Beside::Asks;
      }
    return all.value_or(Beside::None); // the grids have no off-grid tokens
  };
  const auto beside = [&](std::optional<unsigned> grid) {
    return grid ? sidesOf(module.grids[*grid]) : llvm::SmallVector<GridSide, 2>{GridSide::Before, GridSide::Behind};
  };
  const llvm::SmallVector<GridSide, 2> queries = beside(grids.queries), keys = beside(grids.keys);
  return {judge(kOn, keys), judge(queries, kOn), judge(queries, keys)};
}

} // namespace attnc::passes
