// In: any module. Out: the same without coordinates on grids: for kernels that know no grids.
//
//   grid [@HEIGHT, 128] before 77
//   %0 = coord i32 grid0.0, %q_idx     =>   %0 = sub i32 %q_idx, 77
//   %1 = coord i32 grid0.1, %q_idx          %1 = floor_div i32 %0, 128
//                                           %2 = mod i32 %0, 128
//
// The declarations stay: bind() holds a launch to them, and analyses know by them how large their numbers can be.
#include "passes/pass.h"
#include "passes/rebuild.h"

namespace attnc::passes {
namespace {

using ir::Op;
using ir::Type;
using ir::Value;

/// Writes the formulas of ir::GridAxis, without operations that change nothing.
class PlaceWriter {
public:
  PlaceWriter(ir::Module& out, const ir::Node& node)
      : out(out), grid(out.grids[ir::GridAxis::of(node).grid]), line(node.line),
        token(minus(node.operands[0], out.numberOf(grid.before))) {}

  Value coord(unsigned axis) const {
    const Value row = over(token, productFrom(axis + 1));
    return axis == 0 ? row : i32(Op::Mod, row, out.numberOf(grid.extents[axis]));
  }

  Value inGrid() const {
    const Value isBehind = out.make(Op::Le, Type::Bool, {out.constInt(Type::I32, 0), token}, 0, line);
    const Value isBefore = out.make(Op::Lt, Type::Bool, {token, productFrom(0)}, 0, line);
    return out.make(Op::And, Type::Bool, {isBehind, isBefore}, 0, line);
  }

private:
  Value i32(Op op, Value a, Value b) const { return out.make(op, Type::I32, {a, b}, 0, line); }
  bool isNumber(Value value, int64_t number) const { return out.isConst(value) && out.integer(value) == number; }
  Value minus(Value a, Value b) const { return isNumber(b, 0) ? a : i32(Op::Sub, a, b); }
  Value over(Value a, Value b) const { return isNumber(b, 1) ? a : i32(Op::FloorDiv, a, b); }

  Value productFrom(unsigned axis) const {
    if (axis >= grid.extents.size()) return out.constInt(Type::I32, 1);
    Value product = out.numberOf(grid.extents[axis]);
    while (++axis < grid.extents.size()) product = i32(Op::Mul, product, out.numberOf(grid.extents[axis]));
    return product;
  }

  ir::Module& out;
  const ir::Grid& grid;
  const uint32_t line;
  const Value token; ///< counted from the first of the grid
};

} // namespace

Status lowerGrids(ir::Module& module, const PassContext&) {
  if (!ir::uses(module, Op::Coord) && !ir::uses(module, Op::InGrid)) return {};
  module = rebuild(module, [](ir::Module& out, const ir::Node& node) {
    if (node.op == Op::Coord) return PlaceWriter(out, node).coord(ir::GridAxis::of(node).axis);
    if (node.op == Op::InGrid) return PlaceWriter(out, node).inGrid();
    return keep(out, node);
  });
  return {};
}

} // namespace attnc::passes
