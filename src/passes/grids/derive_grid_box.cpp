// In: a module after the passes that keeps grid coordinates. Out: the box of keys that a query sees, if mask_mod
// describes one, axis by axis: box_begin_0, box_end_0, ...; see analysis/grid_box.h.
//
//   mask = abs(qy - ky) <= 6 & abs(qx - kx) <= 6
//                                           =>   box_begin_0 = qy - 6, box_end_0 = qy + 7, box_begin_1 = qx - 6, ...
//
// Recognized: neighborhoods, also clipped or shifted at borders; windows of a grid (ky // 8 == qy // 8); causal axes;
// dilation (ky % 2 == qy % 2); unbounded axes; choices between these by head or by run-time scalars. Other conditions
// stay in box_rest, and the box contains all keys that may be live.
//
// For tokens on their grids mask_mod is treated as a conjunction. A part that reads only one key coordinate becomes a
// condition on a column, with that coordinate as the column.
#include "analysis/intervals.h"
#include "ir/ir.h"
#include "ir/levels.h"
#include "ir/walk.h"
#include "passes/column_span.h"
#include "passes/ir_names.h"
#include "passes/mask_where.h"
#include "passes/pass.h"
#include "passes/pipeline.h"
#include "passes/rebuild.h"
#include "support/try.h"

#include <fmt/format.h>
#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/STLExtras.h>

#include <bit>

namespace attnc::passes {
namespace {

using analysis::GridBox;
using analysis::gridBox;
using analysis::GridsUsed;
using analysis::gridsUsed;

constexpr int kMaxHeadChoices = 2; // each choice doubles the number of values
constexpr ir::ParamSet kOfRow = {ParamKind::B, ParamKind::H, ParamKind::QIdx};

/// Copies all nodes to `into`. Returns the copies by Value::id of `from`.
std::vector<Value> copyNodes(const ir::Module& from, ir::Module& into) {
  std::vector<Value> now;
  for (uint32_t id = 0; id < from.size(); ++id) {
    Node node = from[{id}];
    for (Value& operand : node.operands) operand = now[operand.id];
    now.push_back(keep(into, node));
  }
  return now;
}

/// Which parameters of the key a part of the mask reads.
struct Uses {
  uint32_t axes = 0;   ///< one bit for each key coordinate
  bool others = false; ///< whether it reads anything else that is not known per row
};

/// A box, as values of one module.
struct Found {
  llvm::SmallVector<GridBox::Axis, 3> axes;
  std::optional<Value> rest;
};

class BoxFinder {
public:
  BoxFinder(ir::Module& module, unsigned keys) : module(module), keys(keys), axes(module.grids[keys].extents.size()) {}

  void run() {
    collectParts(*module.output(ir::kMask));
    for (Value part : parts)
      if (!take(part)) rest.push_back(part);
  }

  /// Returns a per-head condition in the parts that did not become bounds, if any.
  std::optional<Value> choice() const {
    const std::vector<ir::Level> levels = ir::levels(module);
    llvm::SmallVector<Value, 16> open(rest.begin(), rest.end());
    std::vector<bool> seen(module.size(), false);
    while (!open.empty()) {
      const Value value = open.pop_back_val();
      const Node& node = module[value];
      if (seen[value.id] || node.type != Type::Bool || module.isConst(value)) continue;
      seen[value.id] = true;
      if (levels[value.id] <= ir::Level::Head && node.op != Op::Not) return value;
      const bool isJoined =
          node.op == Op::And || node.op == Op::Or || node.op == Op::Xor || node.op == Op::Not || node.op == Op::Select;
      if (isJoined) open.append(node.operands.begin(), node.operands.end());
    }
    return std::nullopt;
  }

  /// Copies the box to a module with the same declarations.
  Found copyInto(ir::Module& into) const {
    const std::vector<Value> now = copyNodes(module, into);
    const auto moved = [&](std::optional<Value> value) { return value ? std::optional(now[value->id]) : value; };
    Found found;
    for (const GridBox::Axis& axis : axes)
      found.axes.push_back({moved(axis.begin), moved(axis.end), moved(axis.step), moved(axis.phase)});
    for (Value part : rest)
      found.rest = found.rest ? into.make(Op::And, Type::Bool, {*found.rest, now[part.id]}) : now[part.id];
    return found;
  }

private:
  void collectParts(Value root) {
    llvm::SmallVector<Value, 16> open = {root};
    while (!open.empty()) {
      const Value value = open.pop_back_val();
      const Node& node = module[value];
      if (node.op == Op::And && node.type == Type::Bool)
        open.append(node.operands.begin(), node.operands.end());
      else if (!llvm::is_contained(parts, value) && !(module.isConst(value) && module.integer(value)))
        parts.push_back(value);
    }
  }

  Uses usesOf(Value root) const {
    Uses uses;
    const auto isEnd = [&](Value value) { return isKeyCoordinate(value); };
    const std::vector<bool> needed = ir::neededBy(module, root, isEnd);
    for (uint32_t id = 0; id <= root.id; ++id) {
      if (!needed[id]) continue;
      if (isKeyCoordinate({id}))
        uses.axes |= 1u << ir::GridAxis::of(module[{id}]).axis;
      else if (module[{id}].op == Op::Param && !kOfRow.contains(ParamKind(module[{id}].attr)))
        uses.others = true;
    }
    return uses;
  }

  bool isKeyCoordinate(Value value) const {
    const Node& node = module[value];
    return node.op == Op::Coord && ir::GridAxis::of(node).grid == keys &&
           module.isParam(node.operands[0], ParamKind::KvIdx);
  }

  /// Turns the part into a bound of its axis. Returns false if it is not one.
  bool take(Value part) {
    const Uses uses = usesOf(part);
    if (uses.others || std::popcount(uses.axes) > 1) return false;
    const unsigned axis = uses.axes ? unsigned(std::countr_zero(uses.axes)) : 0;
    return takeStep(part, axis) || takeSpan(part, axis);
  }

  /// Returns the part with its key coordinate replaced by kv_idx, the column. This is sound: an on-grid token's
  /// coordinate is at most its position, so all that the analyses assume of kv_idx holds for it.
  Value asColumn(Value root) {
    const std::vector<bool> needed = ir::neededBy(module, root, [&](Value value) { return isKeyCoordinate(value); });
    llvm::DenseMap<uint32_t, Value> now;
    for (uint32_t id = 0; id <= root.id; ++id) {
      if (!needed[id]) continue;
      Node node = module[{id}];
      if (isKeyCoordinate({id})) {
        now[id] = module.param(ParamKind::KvIdx);
        continue;
      }
      for (Value& operand : node.operands) operand = now.lookup(operand.id);
      now[id] = keep(module, node);
    }
    return now.lookup(root.id);
  }

  bool takeSpan(Value part, unsigned axis) {
    const std::optional<ColumnSpan> span = columnSpan(module, asColumn(part), RowConditions::Any);
    if (!span) return false;
    if (span->isAll) return true;
    GridBox::Axis& box = axes[axis];
    box.begin = box.begin ? module.make(Op::Max, Type::I32, {*box.begin, span->begin}) : span->begin;
    box.end = box.end ? module.make(Op::Min, Type::I32, {*box.end, span->end}) : span->end;
    return true;
  }

  /// Recognizes (k + c) mod step == r: every step-th coordinate.
  bool takeStep(Value part, unsigned axis) {
    const Node node = module[part];
    if (node.op != Op::Eq || axes[axis].step) return false;
    const ir::Level column = ir::Level::Column;
    const std::vector<ir::Level> levels = ir::levels(module);
    const bool isFirst = levels[node.operands[0].id] >= column;
    const Value of = node.operands[isFirst ? 0 : 1], row = node.operands[isFirst ? 1 : 0];
    if (levels[of.id] < column || levels[row.id] > ir::Level::Row || module[of].op != Op::Mod) return false;
    const Value step = module[of].operands[1];
    analysis::Intervals intervals(module);
    if (module[of].type != Type::I32 || levels[step.id] > ir::Level::Head || intervals.range(step).lo < 1) return false;
    // A remainder that no coordinate has would require an empty box: the part is not taken.
    const bool isRemainder = intervals.range(row).within(0, intervals.range(step).lo - 1) ||
                             (module[row].op == Op::Mod && module[row].operands[1] == step);
    Value sum = module[of].operands[0], phase = row;
    if (!isRemainder) return false;
    while (!isKeyCoordinate(sum)) {
      const Node at = module[sum];
      if ((at.op != Op::Add && at.op != Op::Sub) || !intervals.isExact(sum)) return false;
      const bool isKeyFirst = levels[at.operands[0].id] >= column;
      if (at.op == Op::Sub && !isKeyFirst) return false;
      const Value other = at.operands[isKeyFirst ? 1 : 0];
      if (other.id >= levels.size() || levels[other.id] > ir::Level::Row) return false;
      phase = module.make(at.op == Op::Add ? Op::Sub : Op::Add, Type::I32, {phase, other});
      if (!intervals.isExact(phase)) return false;
      sum = at.operands[isKeyFirst ? 0 : 1];
    }
    axes[axis].step = step;
    axes[axis].phase = phase == row ? row : module.make(Op::Mod, Type::I32, {phase, step});
    return true;
  }

  ir::Module& module;
  const unsigned keys;
  llvm::SmallVector<Value, 8> parts, rest;
  llvm::SmallVector<GridBox::Axis, 3> axes;
};

/// Returns the box that is `yes` if the condition holds, else `no`.
Found chosenBox(ir::Module& module, Value condition, const Found& yes, const Found& no) {
  const auto number = [&](int64_t value) { return module.constInt(Type::I32, value); };
  const auto either = [&](const std::optional<Value>& a, const std::optional<Value>& b, Value otherwise) {
    const Value x = a.value_or(otherwise), y = b.value_or(otherwise);
    return x == y ? x : module.make(Op::Select, Type::I32, {condition, x, y});
  };
  Found found;
  for (size_t i = 0; i < yes.axes.size(); ++i) {
    const GridBox::Axis &a = yes.axes[i], &b = no.axes[i];
    GridBox::Axis axis;
    if (a.begin || b.begin) axis.begin = either(a.begin, b.begin, number(0));
    if (a.begin || b.begin) axis.end = either(a.end, b.end, number(ir::kMaxExtent));
    if (a.step || b.step) axis.step = either(a.step, b.step, number(1));
    if (a.step || b.step) axis.phase = either(a.phase, b.phase, number(0));
    found.axes.push_back(axis);
  }
  if (!yes.rest && !no.rest) return found;
  const Value always = module.constBool(true);
  found.rest = module.make(Op::Select, Type::Bool, {condition, yes.rest.value_or(always), no.rest.value_or(always)});
  return found;
}

/// Returns the box that a mask describes. If only a per-head condition prevents a box, it tries both outcomes.
Expected<Found> findBox(ir::Module mask, unsigned keys, ir::Module& into, int choicesLeft) {
  const ir::Module given = mask;
  BoxFinder finder(mask, keys);
  finder.run();
  const std::optional<Value> choice = choicesLeft > 0 ? finder.choice() : std::nullopt;
  if (!choice) return finder.copyInto(into);
  std::vector<Found> found;
  for (bool holds : {true, false}) {
    Expected<ir::Module> there =
        assuming(given, [&](Value value) { return value == *choice ? std::optional(holds) : std::nullopt; });
    if (!there) return std::move(there).error();
    Expected<Found> one = findBox(*std::move(there), keys, into, choicesLeft - 1);
    if (!one) return one;
    found.push_back(*std::move(one));
  }
  return chosenBox(into, copyNodes(given, into)[choice->id], found[0], found[1]);
}

/// Adds the box as outputs.
void writeBox(const Found& found, ir::Module& module) {
  for (size_t i = 0; i < found.axes.size(); ++i) {
    const auto set = [&](const char* what, const std::optional<Value>& value) {
      if (value) module.setOutput(analysis::boxOutput(what, i), kOfRow, *value);
    };
    set("begin", found.axes[i].begin);
    set("end", found.axes[i].end);
    set("step", found.axes[i].step);
    set("phase", found.axes[i].phase);
  }
  if (found.rest) module.setOutput("box_rest", ir::kMask.params, *found.rest);
}

} // namespace

Status deriveGridBox(ir::Module& module, const PassContext&) {
  const GridsUsed grids = gridsUsed(module);
  if (!grids.keys || !module.output(ir::kMask) || gridBox(module)) return {};
  ATTNC_TRY_AS(inside, maskWhere(module, grids, GridSide::On, GridSide::On));
  ir::Module with = module;
  ATTNC_TRY_AS(found, findBox(*std::move(inside), *grids.keys, with, kMaxHeadChoices));
  if (llvm::none_of(found->axes, [](const GridBox::Axis& axis) { return axis.begin || axis.step; })) return {};
  writeBox(*found, with);
  std::vector<Pass> order;
  for (const char* name : {"simplify", "cse", "dce"}) order.push_back(*findPass(name));
  ATTNC_TRY(runPasses(with, order, {}));
  module = std::move(with);
  return {};
}

} // namespace attnc::passes
