// grid(HEIGHT, WIDTH, before=TEXT): tokens on a grid, and their coordinates.
#include "dsl/builtins/builtins.h"
#include "dsl/ir_names.h"
#include "dsl/objects/scalars.h"
#include "dsl/objects/tensors.h"
#include "ir/ir.h"

namespace attnc::dsl {

namespace {

ir::Grid::Number numberOf(Context& context, Object given, int64_t least) {
  using Kind = ir::Grid::Number::Kind;
  const Object value = scalar(context, given, "grid");
  if (value.is<int64_t>()) {
    const int64_t number = value.as<int64_t>();
    if (number < least || number > ir::kMaxExtent)
      context.fail(diag::gridRange, Count(number), Count(least), Count(ir::kMaxExtent));
    return {Kind::Constant, number};
  }
  if (value.isTraced()) {
    const ir::Node& node = context.module[value.as<ir::Value>()];
    if (node.op == Op::Scalar && node.type == Type::I32) return {Kind::Scalar, node.attr};
    if (node.op == Op::Dim) return {Kind::Dim, node.attr};
    const char* what = node.op == Op::Param ? "an index" : "a computed value";
    context.fail(diag::gridNumber, what);
  }
  context.fail(diag::gridNumber, context.describe(value));
}

/// grid(*extents, before=0)
Object makeGrid(Context& context, const Bound& bound) {
  if (bound.rest.empty() || bound.rest.size() > ir::kMaxGridAxes)
    context.fail(diag::gridAxes, Count(bound.rest.size()), Count(ir::kMaxGridAxes));
  ir::Grid grid;
  for (Object extent : bound.rest) grid.extents.push_back(numberOf(context, extent, 1));
  if (bound.has(1)) grid.before = numberOf(context, bound[1], 0);
  std::vector<ir::Grid>& grids = context.module.grids;
  const auto found = llvm::find(grids, grid);
  const GridObject made{unsigned(found - grids.begin())};
  if (found != grids.end()) return made;
  if (grids.size() == ir::kMaxGrids) context.fail(diag::tooManyGrids, Count(ir::kMaxGrids));
  grids.push_back(std::move(grid));
  return made;
}

ir::Value position(Context& context, const Bound& bound) {
  const Object value = argument(context, bound, 1);
  if (!isInt(context, value))
    context.fail(diag::badArgument, bound.builtin->name, "the position of a token", context.describe(value));
  return lift(context, value, Type::I32);
}

Object coords(Context& context, const Bound& bound) {
  const unsigned grid = bound[0].as<GridObject>().number;
  const ir::Value token = position(context, bound);
  std::vector<Object> result;
  for (unsigned axis = 0; axis < context.module.grids[grid].extents.size(); ++axis)
    result.emplace_back(context.make(Op::Coord, Type::I32, {token}, ir::GridAxis{grid, axis}.attr()));
  return context.makeSequence(/*isList=*/false, std::move(result));
}

Object contains(Context& context, const Bound& bound) {
  const unsigned grid = bound[0].as<GridObject>().number;
  return context.make(Op::InGrid, Type::Bool, {position(context, bound)}, ir::GridAxis{grid, 0}.attr());
}

} // namespace

llvm::ArrayRef<Builtin> gridBuiltins() {
  static const Builtin rows[] = {
      {"grid", kAttnc, "*extents, before=", makeGrid},
      {"coords", kGridMethod, "grid, position", coords},
      {"contains", kGridMethod, "grid, position", contains},
  };
  return rows;
}

} // namespace attnc::dsl
