#include "analysis/grid_box.h"

#include "analysis/ir_names.h"
#include "ir/walk.h"

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

namespace attnc::analysis {

std::string boxOutput(const char* what, size_t axis) { return fmt::format("box_{}_{}", what, axis); }

static constexpr const char* kBesideOutputs[] = {"beside_key", "beside_query", "beside_both"};

void setBeside(ir::Module& module, const BesideGrid& beside) {
  const Beside said[] = {beside.key, beside.query, beside.both};
  for (size_t i = 0; i < std::size(said); ++i)
    module.setOutput(kBesideOutputs[i], {}, module.constInt(ir::Type::I32, int64_t(said[i])));
}

static std::optional<BesideGrid> besideOf(const ir::Module& module) {
  if (!module.output(kBesideOutputs[0])) return std::nullopt;
  const auto said = [&](size_t i) { return Beside(module.integer(*module.output(kBesideOutputs[i]))); };
  return BesideGrid{said(0), said(1), said(2)};
}

GridsUsed gridsUsed(const ir::Module& module) {
  GridsUsed used;
  bool isOneQuery = true, isOneKey = true;
  const std::vector<bool> needed = ir::neededByOutputs(module);
  for (uint32_t id = 0; id < module.size(); ++id) {
    const Node& node = module[{id}];
    if (!needed[id] || ir::info(node.op).rule != ir::TypeRule::Grid) continue;
    const unsigned grid = ir::GridAxis::of(node).grid;
    const auto meet = [&](std::optional<unsigned>& known, bool& isOne) {
      isOne = isOne && (!known || *known == grid);
      known = grid;
    };
    if (module.isParam(node.operands[0], ParamKind::QIdx)) meet(used.queries, isOneQuery);
    if (module.isParam(node.operands[0], ParamKind::KvIdx)) meet(used.keys, isOneKey);
  }
  if (!isOneQuery) used.queries.reset();
  if (!isOneKey) used.keys.reset();
  return used;
}

bool GridBox::isMask() const {
  return !rest && llvm::none_of(axes, [](const Axis& axis) { return axis.step.has_value(); });
}

std::optional<GridBox> gridBox(const ir::Module& module) {
  const GridsUsed grids = gridsUsed(module);
  if (!grids.keys) return std::nullopt;
  GridBox box{*grids.keys, grids.queries, {}, module.output("box_rest"), besideOf(module)};
  bool found = false;
  for (size_t axis = 0; axis < module.grids[*grids.keys].extents.size(); ++axis) {
    const auto get = [&](const char* what) { return module.output(boxOutput(what, axis)); };
    box.axes.push_back({get("begin"), get("end"), get("step"), get("phase")});
    found = found || box.axes.back().begin || box.axes.back().step;
  }
  return found ? std::optional(box) : std::nullopt;
}

} // namespace attnc::analysis
