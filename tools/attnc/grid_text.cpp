#include "grid_text.h"

#include "journey.h"
#include "text.h"

#include "analysis/grid_box.h"
#include "api/mod_impl.h"
#include "ir/levels.h"
#include "ir/walk.h"
#include "passes/beside_grid.h"
#include "passes/pipeline.h"
#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace attnc::cli {
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

/// "128 x WIDTH behind 77 tokens"
std::string gridText(const ir::Module& module, const ir::Grid& grid) {
  std::string text;
  for (size_t axis = 0; axis < grid.extents.size(); ++axis) {
    const std::string extent = extentText(module, grid, axis);
    text += text.empty() ? "" : " x ";
    text += axis == 0 && grid.hasRest() ? "(" + extent + ")" : extent;
  }
  if (!hasBefore(grid)) return text;
  return text + fmt::format(" behind {} tokens", numberText(module, grid.before));
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
  if (ir::isLeaf(node)) {
    switch (ir::leafOf(node)) {
    case ir::Leaf::Const:
      return node.type == Type::F32 ? fmt::format("{}", module.f32(value))
                                    : valueText(node.type, {.integer = module.integer(value)});
    case ir::Leaf::Param: return ir::name(ir::ParamKind(node.attr));
    case ir::Leaf::Scalar: return module.scalars[size_t(node.attr)].name;
    case ir::Leaf::Dim: return module.dims[size_t(node.attr)];
    case ir::Leaf::Iter: return fmt::format("i{}", ir::Loop::of(node).id);
    }
  }
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

std::string axisText(const ir::Module& module, const analysis::GridBox::Axis& axis, const std::string& extent) {
  const auto text = [&](ir::Value value) { return expressionText(module, value, extent); };
  std::string result = "all";
  if (axis.begin) result = fmt::format("{} to before {}", text(*axis.begin), text(*axis.end));
  if (axis.step) result += fmt::format(", those that are {} modulo {}", text(*axis.phase), text(*axis.step));
  return result;
}

const char* besideText(passes::Beside beside) {
  switch (beside) {
  case passes::Beside::None: return "no";
  case passes::Beside::All: return "all";
  case passes::Beside::Asks: break;
  }
  return "some";
}

/// `kernel` is what box kernels are written from; null if there are none.
std::string boxText(const ir::Module& module, const analysis::GridsUsed& used, const passes::GridKernel* kernel) {
  const std::optional<analysis::GridBox> box = analysis::gridBox(module);
  if (!module.output(ir::kMask)) return "box         there is no mask_mod: a query sees all keys\n";
  if (!used.keys) return "box         mask_mod does not ask for coordinates of kv_idx on one grid\n";
  if (!box && kernel && !kernel->isFound)
    return "box         none: mask_mod is no box of keys; forward kernels go by lists of boxes\n";
  if (!box) return "box         none: mask_mod is no box of keys\n";
  std::string text = box->rest ? "box         mask_mod lies in a box of keys per query, and asks for more\n"
                               : "box         mask_mod is a box of keys per query\n";
  for (unsigned axis = 0; axis < box->axes.size(); ++axis)
    text += fmt::format("            k{}: {}\n", axisName(module, {box->keys, axis}),
                        axisText(module, box->axes[axis], extentText(module, module.grids[box->keys], axis)));
  const bool asksBeside = ir::uses(module, Op::InGrid) || hasBefore(module.grids[box->keys]);
  if (!asksBeside) return text;
  const passes::BesideGrid beside = passes::besideGrid(module);
  return text +
         fmt::format(
             "            on the grid, a query sees {} keys beside it; beside it, {} keys on it and {} beside it\n",
             besideText(beside.key), besideText(beside.query), besideText(beside.both));
}

/// Returns the lengths that box kernels serve for a mod that declares no grid. `kernel`: as for boxText().
std::string foundText(const ir::Module& module, const analysis::GridsUsed& used, const passes::GridKernel* kernel) {
  if (!kernel) return "            found in // and %; no kernel by boxes gains from it\n";
  if (!kernel->isBounded)
    return "            found in // and %; with a grid that is declared, forward kernels go by lists of boxes\n";
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
  return fmt::format("            found in // and %: kernels by boxes (family grid{}) serve {}\n",
                     kernel->beside ? ", on Hopper" : "", text);
}

/// Returns a hint for a mod that splits positions by the launch's `// W` and `% W` but has no grid; empty for others.
std::string hintText(const ir::Module& module) {
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
      const std::string width = expressionText(module, row.operands[1], "KV_LEN", kDepth, false);
      return fmt::format(
          "grid        none is found, though positions are taken apart by // and % {}: of one number,\n"
          "            WIDTH: int, with image = grid(HEIGHT, WIDTH), y, x = image.coords(q_idx), attnc sees boxes\n",
          width);
    }
  }
  return "";
}

} // namespace

/// Returns the module with its grids and, if it has one, its box; and which of the grids are used.
static Expected<std::pair<ir::Module, analysis::GridsUsed>> onGrids(const Mod& mod) {
  ir::Module module = tracedModule(mod);
  ATTNC_TRY(passes::runPipeline(module, {.keepsGrids = true}));
  const analysis::GridsUsed used = analysis::gridsUsed(module);
  ATTNC_TRY(passes::deriveGridBox(module, {}));
  return std::pair(std::move(module), used);
}

bool declaresGrids(const Mod& mod) { return !tracedModule(mod).grids.empty(); }

Expected<ProblemShape> onDeclaredGrids(const Mod& mod, const RunOptions& options, ProblemShape shape) {
  if (!declaresGrids(mod)) return shape;
  ATTNC_TRY_AS(found, onGrids(mod));
  const auto& [module, used] = *found;
  std::map<std::string, std::string> given = assignments("--set", options.sets);
  given.merge(assignments("--pin", options.kernel.pins));
  const auto numberOf = [&, &module = module](const ir::Grid::Number& number) -> std::optional<int64_t> {
    if (number.kind == ir::Grid::Number::Kind::Constant) return number.value;
    auto text = given.find(numberText(module, number));
    int64_t value = 0;
    if (text == given.end() || !parseInteger(text->second, value) || value < 0 || value > ir::kMaxExtent)
      return std::nullopt;
    return value;
  };
  const auto setLength = [&, &module = module](std::optional<unsigned> grid, int64_t& length) {
    if (!grid) return;
    const ir::Grid& of = module.grids[*grid];
    std::optional<int64_t> tokens = 1;
    for (const ir::Grid::Number& extent : of.extents) {
      const std::optional<int64_t> number = numberOf(extent);
      tokens = tokens && number ? std::optional(std::min(*tokens * *number, ir::kMaxExtent)) : std::nullopt;
    }
    const std::optional<int64_t> before = numberOf(of.before);
    if (tokens && before) length = std::min(*tokens + *before, ir::kMaxExtent);
  };
  setLength(used.queries, shape.qLen);
  setLength(used.keys, shape.kvLen);
  return shape;
}

Expected<std::string> gridsText(const Mod& mod) {
  ATTNC_TRY_AS(found, onGrids(mod));
  const auto& [module, used] = *found;
  if (module.grids.empty()) return hintText(mod.module());
  if (!declaresGrids(mod) && !(used.queries && used.keys)) return std::string();
  std::string text;
  for (unsigned i = 0; i < module.grids.size(); ++i) {
    const bool ofQueries = used.queries == i, ofKeys = used.keys == i;
    const char* whose = ofQueries && ofKeys ? ": queries and keys" : ofQueries ? ": queries" : ofKeys ? ": keys" : "";
    text += fmt::format("{:12}{}{}\n", text.empty() ? "grid" : "", gridText(module, module.grids[i]), whose);
  }
  ATTNC_TRY_AS(kernelMod, kernelModOf(mod, {}));
  const passes::GridKernel* kernel = (*kernelMod)->grid.get();
  if (!declaresGrids(mod)) text += foundText(module, used, kernel);
  return text + boxText(module, used, kernel);
}

Expected<JsonReport> gridsJson(const Mod& mod) {
  JsonReport json = JsonReport::object();
  ATTNC_TRY_AS(found, onGrids(mod));
  const auto& [module, used] = *found;
  if (module.grids.empty() || !(declaresGrids(mod) || (used.queries && used.keys))) return json;
  json["grids"] = JsonReport::array();
  for (unsigned i = 0; i < module.grids.size(); ++i) {
    JsonReport one{{"extents", JsonReport::array()}, {"before", numberText(module, module.grids[i].before)}};
    for (size_t axis = 0; axis < module.grids[i].extents.size(); ++axis)
      one["extents"].push_back(extentText(module, module.grids[i], axis));
    one["isDeclared"] = declaresGrids(mod);
    one["ofQueries"] = used.queries == i;
    one["ofKeys"] = used.keys == i;
    json["grids"].push_back(std::move(one));
  }
  const std::optional<analysis::GridBox> box = used.keys ? analysis::gridBox(module) : std::nullopt;
  if (!box) return json;
  json["box"] = {{"isMask", box->isMask()}, {"axes", JsonReport::array()}};
  for (unsigned axis = 0; axis < box->axes.size(); ++axis) {
    const analysis::GridBox::Axis& of = box->axes[axis];
    const std::string extent = extentText(module, module.grids[box->keys], axis);
    JsonReport one{{"axis", axisName(module, {box->keys, axis})}};
    for (auto [name, value] : {std::pair("begin", of.begin), {"end", of.end}, {"step", of.step}, {"phase", of.phase}})
      if (value) one[name] = expressionText(module, *value, extent);
    json["box"]["axes"].push_back(std::move(one));
  }
  return json;
}

} // namespace attnc::cli
