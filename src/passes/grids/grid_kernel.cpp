#include "passes/grids/grid_kernel.h"

#include "analysis/grid_box.h"
#include "ir/ir.h"
#include "ir/walk.h"
#include "passes/autodiff.h"
#include "passes/grids/place_writer.h"
#include "passes/grids/steps_apart.h"
#include "passes/ir_names.h"
#include "passes/order_captures.h"
#include "passes/pass.h"
#include "passes/pipeline.h"
#include "passes/rebuild.h"
#include "support/try.h"

#include <llvm/ADT/STLExtras.h>

#include <numeric>
#include <set>

namespace attnc::passes {
namespace {

using analysis::GridBox;
using analysis::gridBox;
using analysis::GridsUsed;
using analysis::gridsUsed;

/// factor * base + by, with factor > 0.
struct Linear {
  Value base;
  int64_t factor = 1, by = 0;
};

Linear withoutConstants(const ir::Module& module, Linear value) {
  while (true) {
    const Node& node = module[value.base];
    if ((node.op != Op::Add && node.op != Op::Mul) || !module.isConst(node.operands[1])) return value;
    const int64_t constant = module.integer(node.operands[1]);
    if (node.op == Op::Add) {
      value.by += value.factor * constant;
    } else {
      if (constant < 1 || value.factor * constant > ir::kMaxExtent) return value;
      value.factor *= constant;
    }
    value.base = node.operands[0];
  }
}

/// Returns the operands of a chain of max (or min), up to a limit: `value` equals one of them and is bounded by all.
llvm::SmallVector<Linear, 4> boundsBy(const ir::Module& module, Op op, Value value) {
  llvm::SmallVector<Linear, 4> found, open = {{value}};
  constexpr size_t kMost = 32;
  while (!open.empty() && found.size() < kMost) {
    const Linear at = withoutConstants(module, open.pop_back_val());
    found.push_back(at);
    if (module[at.base].op != op) continue;
    for (Value operand : module[at.base].operands) open.push_back({operand, at.factor, at.by});
  }
  return found;
}

std::optional<int64_t> spanOf(const ir::Module& module, Value begin, Value end) {
  std::optional<int64_t> span;
  for (const Linear& from : boundsBy(module, Op::Max, begin))
    for (const Linear& to : boundsBy(module, Op::Min, end))
      if (from.base == to.base && from.factor == to.factor && to.by - from.by < span.value_or(ir::kMaxExtent))
        span = to.by - from.by;
  return span;
}

/// Returns the greatest common divisor of the divisors, if the values read coordinates only through quotients
/// (coordinate // n); else 1. `axis`: only considers coordinates along this axis.
int64_t strideOf(const ir::Module& module, llvm::ArrayRef<Value> values, std::optional<unsigned> axis = std::nullopt) {
  std::vector<bool> needed(module.size(), false);
  for (Value value : values) {
    const std::vector<bool> by = ir::neededBy(module, value);
    for (uint32_t id = 0; id < by.size(); ++id)
      if (by[id]) needed[id] = true;
  }
  int64_t stride = 0;
  for (uint32_t id = 0; id < module.size(); ++id) {
    const Node& node = module[{id}];
    if (!needed[id]) continue;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const Node& operand = module[node.operands[i]];
      if (operand.op != Op::Coord || (axis && ir::GridAxis::of(operand).axis != *axis)) continue;
      if (node.op != Op::FloorDiv || i != 0 || !module.isConst(node.operands[1])) return 1;
      stride = std::gcd(stride, module.integer(node.operands[1]));
    }
  }
  const bool isCoordinate = llvm::any_of(values, [&](Value value) { return module[value].op == Op::Coord; });
  return isCoordinate || stride < 1 ? 1 : stride;
}

bool isOwn(const ir::Module& module, const GridsUsed& grids, const Node& node) {
  const unsigned grid = ir::GridAxis::of(node).grid;
  return (grid == grids.queries && module.isParam(node.operands[0], ParamKind::QIdx)) ||
         (grid == grids.keys && module.isParam(node.operands[0], ParamKind::KvIdx));
}

/// Whether the mod provides for off-grid tokens: a grid has tokens before it, or the mod tests which tokens are on the
/// grid.
bool meansBeside(const ir::Module& module, const GridsUsed& grids) {
  const ir::Grid::Number none;
  if (module.grids[*grids.queries].before != none || module.grids[*grids.keys].before != none) return true;
  const std::vector<bool> needed = ir::neededByOutputs(module);
  for (uint32_t id = 0; id < module.size(); ++id)
    if (needed[id] && module[{id}].op == Op::InGrid && isOwn(module, grids, module[{id}])) return true;
  return false;
}

/// Lowers to divisions the coordinates of other tokens than q_idx and kv_idx, and those on other grids. `allOnGrids`:
/// q_idx and kv_idx are known to lie on their grids.
Status lowerOthers(ir::Module& module, const GridsUsed& grids, bool allOnGrids) {
  module = rebuild(module, [&](ir::Module& out, const Node& node) {
    if (ir::info(node.op).rule != ir::TypeRule::Grid) return keep(out, node);
    if (isOwn(out, grids, node)) return node.op == Op::InGrid && allOnGrids ? out.constBool(true) : keep(out, node);
    if (node.op == Op::InGrid) return PlaceWriter(out, node).inGrid();
    return PlaceWriter(out, node).coord(ir::GridAxis::of(node).axis);
  });
  std::vector<Pass> order;
  for (const char* name : {"fold-constants", "simplify", "cse", "dce"}) order.push_back(*findPass(name));
  return runPasses(module, order, {});
}

/// Whether the values depend on the query only by its coordinate along `axis`.
bool dependOnAxis(const ir::Module& module, llvm::ArrayRef<Value> values, unsigned axis) {
  const auto isCoordinate = [&](Value value) { return module[value].op == Op::Coord; };
  return llvm::all_of(values, [&](Value value) {
    const std::vector<bool> needed = ir::neededBy(module, value, isCoordinate);
    for (uint32_t id = 0; id < needed.size(); ++id) {
      if (!needed[id]) continue;
      if (isCoordinate({id}) ? ir::GridAxis::of(module[{id}]).axis != axis : module.isParam({id}, ParamKind::QIdx))
        return false;
    }
    return true;
  });
}

/// Whether windows along the last axis are whole blocks of a block mask, because tokens are stored tile by tile. A
/// block mask then expresses the whole mask, and boxes gain nothing.
bool isOfBlocks(const BoxAxis& last) {
  constexpr int64_t kBlock = 128;
  return last.stride % kBlock == 0 && last.span && *last.span % kBlock == 0;
}

/// Returns the number of axes along which mask_mod reads the key's coordinate.
size_t keyAxesAsked(const ir::Module& module, unsigned keys) {
  const std::optional<Value> mask = module.output(ir::kMask);
  if (!mask) return 0;
  const std::vector<bool> needed = ir::neededBy(module, *mask);
  std::set<unsigned> axes;
  for (uint32_t id = 0; id < module.size(); ++id) {
    const Node& node = module[{id}];
    const bool isCoordinate = needed[id] && node.op == Op::Coord && module.isParam(node.operands[0], ParamKind::KvIdx);
    if (isCoordinate && ir::GridAxis::of(node).grid == keys) axes.insert(ir::GridAxis::of(node).axis);
  }
  return axes.size();
}

/// Returns the step of boxes along the first of two axes: that of a dilated neighborhood. Nullopt: it is 1, or unknown.
std::optional<int64_t> rowStep(const ir::Module& module) {
  const std::optional<GridBox> box = gridBox(module);
  if (!box || box->axes.size() != 2 || !box->axes[0].step || !module.isConst(*box->axes[0].step)) return std::nullopt;
  const int64_t step = module.integer(*box->axes[0].step);
  return step > 1 ? std::optional(step) : std::nullopt;
}

/// Returns the module with [HEIGHT, WIDTH] as [HEIGHT / step, step, WIDTH], so that boxes have no rows between those
/// that a query sees. Nullopt if `step` does not divide HEIGHT, or rows are asked for in other ways than // step and %
/// step.
std::optional<ir::Module> withRowsSplit(const ir::Module& module, const GridsUsed& grids, int64_t step) {
  const auto isSplit = [&](unsigned grid) { return grid == *grids.queries || grid == *grids.keys; };
  const auto isRow = [&](const Node& node) {
    return node.op == Op::Coord && isSplit(ir::GridAxis::of(node).grid) && ir::GridAxis::of(node).axis == 0;
  };
  const std::vector<bool> needed = ir::neededByOutputs(module);
  for (uint32_t id = 0; id < module.size(); ++id) {
    const Node& node = module[{id}];
    const bool isPart = (node.op == Op::FloorDiv || node.op == Op::Mod) && module.isConst(node.operands[1]) &&
                        module.integer(node.operands[1]) == step;
    const auto isOfRow = [&](Value operand) { return isRow(module[operand]); };
    if (needed[id] && llvm::any_of(node.operands, isOfRow) && !isPart) return std::nullopt;
  }
  ir::Module split = module;
  for (unsigned grid = 0; grid < split.grids.size(); ++grid) {
    if (!isSplit(grid)) continue;
    auto& extents = split.grids[grid].extents;
    const ir::Grid::Number rows = extents[0];
    if (rows.kind != ir::Grid::Number::Kind::Constant || rows.value % step != 0) return std::nullopt;
    extents[0].value = rows.value / step;
    extents.insert(extents.begin() + 1, {ir::Grid::Number::Kind::Constant, step});
  }
  llvm::DenseMap<uint32_t, std::pair<Value, Value>> parts; // of a row: // step, % step
  return rebuild(split, [&](ir::Module& out, const Node& node) {
    if (node.op == Op::Coord && isSplit(ir::GridAxis::of(node).grid)) {
      const auto coord = [&](unsigned axis) {
        return out.make(node.op, node.type, node.operands, ir::GridAxis{ir::GridAxis::of(node).grid, axis}.attr(),
                        node.line);
      };
      if (!isRow(node)) return coord(2);
      const Value first = out.make(Op::Mul, node.type, {coord(0), out.constInt(node.type, step)});
      const Value row = out.make(Op::Add, node.type, {first, coord(1)});
      parts[row.id] = {coord(0), coord(1)};
      return row;
    }
    const auto row = node.operands.empty() ? parts.end() : parts.find(node.operands[0].id);
    if (row == parts.end()) return keep(out, node);
    return node.op == Op::FloorDiv ? row->second.first : row->second.second;
  });
}

/// Adds the outputs of derive-grid-box for a box of all keys, with mask_mod as box_rest.
void setBoxOfAllKeys(ir::Module& module) {
  module.setOutput(analysis::boxOutput("begin", 0), {}, module.constInt(ir::Type::I32, 0));
  module.setOutput(analysis::boxOutput("end", 0), {}, module.constInt(ir::Type::I32, ir::kMaxExtent));
  module.setOutput("box_rest", ir::kMask.params, *module.output(ir::kMask));
}

Expected<std::optional<GridKernel>> kernelOf(const ir::Module& traced, const ir::Module& like, bool isFound,
                                             int64_t step = 1) {
  static const std::optional<GridKernel> kNone;
  GridKernel kernel{.module = traced, .isFound = isFound, .step = step};
  ir::Module& module = kernel.module;
  ATTNC_TRY(runPipeline(module, {.keepsGrids = true}));
  orderLike(module, like);
  const GridsUsed grids = gridsUsed(module);
  if (!grids.queries || !grids.keys) return kNone;
  ir::Module boxed = module;
  ATTNC_TRY(deriveGridBox(boxed, {}));
  if (const std::optional<int64_t> step = rowStep(boxed))
    if (std::optional<ir::Module> split = withRowsSplit(module, grids, *step)) module = *std::move(split);
  kernel.ofQueries = module.grids[*grids.queries], kernel.ofKeys = module.grids[*grids.keys];
  if (kernel.ofQueries.extents.size() != kernel.ofKeys.extents.size()) return kNone;
  if (meansBeside(module, grids)) kernel.beside = besideGrid(module);
  ATTNC_TRY(runPasses(module, {*findPass("derive-grid-box")}, {}));
  ATTNC_TRY(lowerOthers(module, grids, !kernel.beside));
  std::optional<GridBox> box = gridBox(module);
  kernel.isBounded = box && llvm::any_of(box->axes, [](const GridBox::Axis& axis) { return axis.begin.has_value(); });
  if (!kernel.isBounded) {
    if (box || kernel.beside || keyAxesAsked(module, *grids.keys) < 2) return kNone;
    setBoxOfAllKeys(module);
    box = gridBox(module);
  }
  kernel.boxIsMask = box->isMask();
  kernel.isSeparable = true;
  for (const GridBox::Axis& axis : box->axes) {
    BoxAxis& known = kernel.axes.emplace_back();
    if (!kernel.isBounded)
      known.stride = strideOf(module, {*module.output(ir::kMask)}, unsigned(kernel.axes.size()) - 1);
    if (!axis.begin || !kernel.isBounded) continue;
    kernel.isSeparable &= dependOnAxis(module, {*axis.begin, *axis.end}, unsigned(kernel.axes.size()) - 1);
    known.span = spanOf(module, *axis.begin, *axis.end);
    known.stride = strideOf(module, {*axis.begin, *axis.end});
  }
  if (kernel.isFound && box->isMask() && isOfBlocks(kernel.axes.back())) return kNone;
  if (kernel.beside) analysis::setBeside(module, *kernel.beside);
  return std::optional(std::move(kernel));
}

} // namespace

Expected<std::optional<StepsApart>> onLine(const ir::Module& traced) {
  const auto isLine = [](const ir::Grid& grid) {
    return grid.extents.size() == 1 && grid.extents[0].kind == ir::Grid::Number::Kind::Constant &&
           grid.before == ir::Grid::Number();
  };
  if (!ir::uses(traced, Op::Mod) || !llvm::all_of(traced.grids, isLine)) return std::optional<StepsApart>();
  ir::Module plain = traced;
  ATTNC_TRY(runPipeline(plain)); // positions take the place of coordinates
  plain.grids.clear();
  std::optional<StepsApart> apart = stepsApart(plain);
  const auto fits = [&](const ir::Grid& grid) { return grid.extents[0].value % apart->step == 0; };
  if (apart && !llvm::all_of(traced.grids, fits)) apart.reset();
  return apart;
}

Expected<std::optional<GridKernel>> gridKernel(const ir::Module& traced, const ir::Module& like) {
  const bool isFound = traced.grids.empty();
  if (isFound && !ir::uses(traced, Op::FloorDiv) && !ir::uses(traced, Op::Mod)) return std::optional<GridKernel>();
  ATTNC_TRY_AS(apart, onLine(traced));
  if (*apart) {
    ATTNC_TRY_AS(kernel, kernelOf((*apart)->module, like, isFound, (*apart)->step));
    if (*kernel && (*kernel)->isBounded) return std::move(*kernel);
  }
  return kernelOf(traced, like, isFound);
}

Expected<ir::Module> withGradient(const GridKernel& kernel) {
  ATTNC_TRY_AS(gradients, differentiate(kernel.module, {}, {.keepsGrids = true}));
  orderLike(gradients->module, kernel.module);
  return std::move(gradients->module);
}

} // namespace attnc::passes
