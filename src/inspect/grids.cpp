// Grids of a mod as data, with expressions as text.
#include "analysis/grid_box.h"
#include "api/mod_impl.h"
#include "api/own_stack.h"
#include "attnc/explain.h"
#include "inspect/expression.h"
#include "ir/bind.h"
#include "ir/levels.h"
#include "ir/walk.h"
#include "passes/grids/beside_grid.h"
#include "passes/pipeline.h"
#include "support/try.h"

#include <fmt/format.h>

namespace attnc {
namespace {

using ir::Op;
using ir::Type;

constexpr int kDepth = 10; // depth of an expression that is written out

/// Precondition: the number is not the rest of the length.
std::string numberText(const ir::Module& module, const ir::Grid::Number& number) {
  switch (number.kind) {
  case ir::Grid::Number::Kind::Constant:
  case ir::Grid::Number::Kind::Rest: break;
  case ir::Grid::Number::Kind::Scalar: return module.scalars[size_t(number.value)].name;
  case ir::Grid::Number::Kind::Dim: return module.dims[size_t(number.value)];
  }
  return fmt::to_string(number.value);
}

/// Returns the extents from an axis on: "HEIGHT x 64", with `by` between them.
std::string extentsText(const ir::Module& module, const ir::Grid& grid, size_t axis, const char* by) {
  std::string text;
  for (; axis < grid.extents.size(); ++axis) text += (text.empty() ? "" : by) + numberText(module, grid.extents[axis]);
  return text;
}

bool hasBefore(const ir::Grid& grid) { return !(grid.before == ir::Grid::Number()); }

/// "128", "KV_LEN / (HEIGHT * 64)", "(KV_LEN - 77) / 64"
std::string extentText(const ir::Module& module, const ir::Grid& grid, size_t axis) {
  const ir::Grid::Number& extent = grid.extents[axis];
  if (extent.kind != ir::Grid::Number::Kind::Rest) return numberText(module, extent);
  const std::string slice = extentsText(module, grid, 1, " * ");
  std::string length = module.dims[size_t(extent.value)];
  if (hasBefore(grid)) length = fmt::format("({} - {})", length, numberText(module, grid.before));
  return fmt::format("{} / {}", length, grid.extents.size() == 2 ? slice : "(" + slice + ")");
}

/// Returns "y"; for a grid of at least two axes.
const char* axisName(const ir::Module& module, const ir::GridAxis& at) {
  constexpr const char* kNames[] = {"z", "y", "x"};
  return kNames[at.axis + ir::kMaxGridAxes - module.grids[at.grid].extents.size()];
}

/// Formats an expression of the coordinates of q_idx, which are qx, qy, qz. `last` is the suffix of each coordinate's
/// name.
std::string expressionText(const ir::Module& module, ir::Value value, const std::string& last, int depth = kDepth,
                           bool isOuter = true) {
  const ir::Node& node = module[value];
  if (module.isConst(value) && node.type == Type::I32 && module.integer(value) == ir::kMaxExtent) return last;
  if (ir::isLeaf(node)) return leafText(module, value);
  if (node.op == Op::Coord && ir::isLeaf(module[node.operands[0]]))
    return fmt::format("{}{}", module.isParam(node.operands[0], ir::ParamKind::QIdx) ? "q" : "k",
                       axisName(module, ir::GridAxis::of(node)));
  if (depth == 0) return "...";
  const char* sign = infix(node.op);
  std::vector<std::string> operands;
  for (ir::Value operand : node.operands) operands.push_back(expressionText(module, operand, last, depth - 1, !sign));
  if (node.op == Op::Add && module.isConst(node.operands[1]) && module.integer(node.operands[1]) < 0) {
    sign = "-";
    operands[1] = operands[1].substr(1);
  }
  if (sign) {
    const std::string text = fmt::format("{} {} {}", operands[0], sign, operands[1]);
    return isOuter ? text : "(" + text + ")";
  }
  if (node.op == Op::Load)
    return fmt::format("{}[{}]", module.tensors[size_t(node.attr)].name, fmt::join(operands, ", "));
  const char* name = node.op == Op::Select ? "where" : ir::info(node.op).text;
  return fmt::format("{}({})", name, fmt::join(operands, ", "));
}

GridInfo infoOf(const ir::Module& module, unsigned at, const analysis::GridsUsed& used) {
  const ir::Grid& grid = module.grids[at];
  GridInfo info{.before = numberText(module, grid.before), .takesRest = grid.hasRest()};
  for (size_t axis = 0; axis < grid.extents.size(); ++axis) info.extents.push_back(extentText(module, grid, axis));
  info.ofQueries = used.queries == at;
  info.ofKeys = used.keys == at;
  return info;
}

const char* besideText(passes::Beside beside) {
  switch (beside) {
  case passes::Beside::None: return "no";
  case passes::Beside::All: return "all";
  case passes::Beside::Asks: break;
  }
  return "some";
}

/// Returns which tokens outside the grid see what; empty if the mod expects none there.
std::string offGridText(const ir::Module& module, unsigned keys) {
  if (!ir::uses(module, Op::InGrid) && !hasBefore(module.grids[keys])) return "";
  const passes::BesideGrid beside = passes::besideGrid(module);
  return fmt::format("on the grid, a query sees {} keys beside it; beside it, {} keys on it and {} beside it",
                     besideText(beside.key), besideText(beside.query), besideText(beside.both));
}

/// Fills the box, or the reason why the mod has no box. `kernel` is what box kernels are written from; null if there
/// are none.
void addBox(const ir::Module& module, const analysis::GridsUsed& used, const passes::GridKernel* kernel,
            ModGrids& grids) {
  const std::optional<analysis::GridBox> box = analysis::gridBox(module);
  if (!module.output(ir::kMask))
    grids.whyNoBox = "there is no mask_mod: a query sees all keys";
  else if (!used.keys)
    grids.whyNoBox = "mask_mod does not ask for coordinates of kv_idx on one grid";
  else if (!box)
    grids.whyNoBox = kernel && !kernel->isFound
                         ? "none: mask_mod is no box of keys; forward kernels go by lists of boxes"
                         : "none: mask_mod is no box of keys";
  if (!grids.whyNoBox.empty()) return;
  grids.box = {box->isMask(), {}, offGridText(module, box->keys)};
  for (unsigned axis = 0; axis < box->axes.size(); ++axis) {
    const analysis::GridBox::Axis& of = box->axes[axis];
    const std::string extent = extentText(module, module.grids[box->keys], axis);
    const auto text = [&](const std::optional<ir::Value>& value) {
      return value ? expressionText(module, *value, extent) : std::string();
    };
    grids.box->axes.push_back(
        {axisName(module, {box->keys, axis}), text(of.begin), text(of.end), text(of.step), text(of.phase)});
  }
}

/// Returns which kernels serve the grids of a mod that declares none. `kernel`: as for addBox().
std::string servedText(const ir::Module& module, const analysis::GridsUsed& used, const passes::GridKernel* kernel) {
  if (!kernel) return "found in // and %; no kernel by boxes gains from it";
  if (!kernel->isBounded)
    return "found in // and %; with a grid that is declared, forward kernels go by lists of boxes";
  std::string text;
  for (auto [name, grid] : {std::pair("Q_LEN", *used.queries), {"KV_LEN", *used.keys}}) {
    const ir::Grid& of = module.grids[grid];
    const std::string tokens = extentsText(module, of, of.hasRest(), " * ");
    const std::string before = hasBefore(of) ? numberText(module, of.before) : "";
    text += text.empty() ? "" : ", ";
    if (of.hasRest())
      text += fmt::format("{} {}a multiple of {}", name, before.empty() ? "" : before + " more than ", tokens);
    else
      text += kernel->beside ? fmt::format("{} from {}{} on", name, before.empty() ? "" : before + " + ", tokens)
                             : fmt::format("{} of {}", name, tokens);
  }
  return fmt::format("found in // and %: kernels by boxes (family grid{}) serve {}",
                     kernel->beside ? ", on Hopper" : "", text);
}

/// Returns W of a mod that splits positions by the launch's `// W` and `% W` but has no grid; empty for others.
std::string divisorOf(const ir::Module& module) {
  const std::vector<bool> needed = ir::neededByOutputs(module);
  const std::vector<ir::Level> levels = ir::levels(module);
  const auto isPosition = [&](ir::Value value) {
    return module.isParam(value, ir::ParamKind::QIdx) || module.isParam(value, ir::ParamKind::KvIdx);
  };
  for (uint32_t id = 0; id < module.size(); ++id) {
    const ir::Node& row = module[{id}];
    if (!needed[id] || row.op != Op::FloorDiv || !isPosition(row.operands[0])) continue;
    if (levels[row.operands[1].id] > ir::Level::Launch) continue;
    for (uint32_t other = 0; other < module.size(); ++other) {
      const ir::Node& column = module[{other}];
      if (!needed[other] || column.op != Op::Mod || column.operands != row.operands) continue;
      return expressionText(module, row.operands[1], "KV_LEN", kDepth, false);
    }
  }
  return "";
}

} // namespace

/// Returns the module with its grids.
static Expected<ir::Module> withGrids(ir::Module module) {
  ATTNC_TRY(passes::runPipeline(module, {.keepsGrids = true}));
  return module;
}

Expected<ModGrids> gridsOf(const Mod& mod) {
  return onOwnStack([&]() -> Expected<ModGrids> {
    ATTNC_TRY_AS(kernelMod, kernelModOf(mod, {}));
    const passes::GridKernel* kernel = (*kernelMod)->grid.get();
    ir::Module traced = tracedModule(mod);
    if (kernel && kernel->step > 1 && kernel->isFound) {
      ATTNC_TRY_AS(apart, passes::onLine(traced));
      traced = std::move((*apart)->module);
    }
    ATTNC_TRY_AS(module, withGrids(std::move(traced)));
    const analysis::GridsUsed used = analysis::gridsUsed(*module);
    ATTNC_TRY(passes::deriveGridBox(*module, {}));
    ModGrids all{.isDeclared = mod.declaresGrids()};
    if (module->grids.empty()) all.divisor = divisorOf(mod.module());
    if (module->grids.empty() || !(all.isDeclared || (used.queries && used.keys))) return all;
    for (unsigned i = 0; i < module->grids.size(); ++i) all.grids.push_back(infoOf(*module, i, used));
    if (!all.isDeclared) all.served = servedText(*module, used, kernel);
    addBox(*module, used, kernel, all);
    return all;
  });
}

Expected<LaunchGrids> gridsOf(const Mod& mod, const Captures& captures, const ProblemShape& problem) {
  return onOwnStack([&]() -> Expected<LaunchGrids> {
    ATTNC_TRY_AS(module, withGrids(tracedModule(mod)));
    ATTNC_TRY_AS(bindings, ir::bind(*module, captures, problem));
    const analysis::GridsUsed used = analysis::gridsUsed(*module);
    LaunchGrids grids;
    for (auto [grid, extents] : {std::pair(used.queries, &grids.queries), {used.keys, &grids.keys}}) {
      if (!grid) continue;
      const ir::Grid& of = module->grids[*grid];
      extents->emplace().before = bindings->of(of.before);
      for (int64_t extent : bindings->extentsOf(of)) (*extents)->extents.push_back(extent);
    }
    return grids;
  });
}

} // namespace attnc
