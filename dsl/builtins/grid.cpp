// grid(HEIGHT, WIDTH, before=TEXT): tokens on a grid, and their coordinates.
#include "dsl/builtins/builtins.h"
#include "dsl/objects/arithmetic.h"
#include "dsl/tracing/tracer.h"
#include "ir/bindings.h"

namespace attnc::dsl {

namespace {

using ir::Op;
using ir::Type;

ir::Grid::Number numberOf(Tracer& tracer, Object given, int64_t least) {
  using Kind = ir::Grid::Number::Kind;
  const Object value = scalar(tracer, given, "grid");
  if (value.is<int64_t>()) {
    const int64_t number = value.as<int64_t>();
    if (number < least || number > ir::kMaxExtent)
      tracer.fail(diag::gridRange, Count(number), Count(least), Count(ir::kMaxExtent));
    return {Kind::Constant, number};
  }
  if (value.isTraced()) {
    const ir::Node& node = tracer.module[value.as<ir::Value>()];
    if (node.op == Op::Scalar && node.type == Type::I32) return {Kind::Scalar, node.attr};
    if (node.op == Op::Dim) return {Kind::Dim, node.attr};
    const char* what = node.op == Op::Param ? "an index" : "a computed value";
    tracer.fail(diag::gridNumber, what);
  }
  tracer.fail(diag::gridNumber, tracer.describe(value));
}

/// grid(*extents, before=0)
Object makeGrid(Tracer& tracer, const Bound& bound) {
  if (bound.rest.empty() || bound.rest.size() > ir::kMaxGridAxes)
    tracer.fail(diag::gridAxes, Count(bound.rest.size()), Count(ir::kMaxGridAxes));
  ir::Grid grid;
  for (Object extent : bound.rest) grid.extents.push_back(numberOf(tracer, extent, 1));
  if (bound.has(1)) grid.before = numberOf(tracer, bound[1], 0);
  std::vector<ir::Grid>& grids = tracer.module.grids;
  const auto found = llvm::find(grids, grid);
  const GridObject made{unsigned(found - grids.begin())};
  if (found != grids.end()) return made;
  if (grids.size() == ir::kMaxGrids) tracer.fail(diag::tooManyGrids, Count(ir::kMaxGrids));
  grids.push_back(std::move(grid));
  return made;
}

ir::Value position(Tracer& tracer, const Bound& bound) {
  const Object value = argument(tracer, bound, 1);
  const bool isInt = value.is<int64_t>() || (value.isTraced() && ir::isInt(tracer.type(value.as<ir::Value>())));
  if (!isInt) tracer.fail(diag::badArgument, bound.builtin->name, "the position of a token", tracer.describe(value));
  return lift(tracer, value, Type::I32);
}

Object coords(Tracer& tracer, const Bound& bound) {
  const unsigned grid = bound[0].as<GridObject>().number;
  const ir::Value token = position(tracer, bound);
  std::vector<Object> result;
  for (unsigned axis = 0; axis < tracer.module.grids[grid].extents.size(); ++axis)
    result.emplace_back(tracer.make(Op::Coord, Type::I32, {token}, ir::GridAxis{grid, axis}.attr()));
  return tracer.makeSequence(/*isList=*/false, std::move(result));
}

Object contains(Tracer& tracer, const Bound& bound) {
  const unsigned grid = bound[0].as<GridObject>().number;
  return tracer.make(Op::InGrid, Type::Bool, {position(tracer, bound)}, ir::GridAxis{grid, 0}.attr());
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
