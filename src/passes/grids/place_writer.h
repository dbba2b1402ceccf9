// Grid coordinates by division and remainder.
#pragma once

#include "ir/ir.h"

namespace attnc::passes {

/// Writes the formulas of ir::GridAxis, without operations that change nothing.
class PlaceWriter {
public:
  PlaceWriter(ir::Module& out, const ir::Node& node)
      : out(out), grid(out.grids[ir::GridAxis::of(node).grid]), line(node.line),
        token(minus(node.operands[0], out.numberOf(grid.before))) {}

  ir::Value coord(unsigned axis) const {
    const ir::Value row = over(token, productFrom(axis + 1));
    return axis == 0 ? row : i32(ir::Op::Mod, row, out.numberOf(grid.extents[axis]));
  }

  ir::Value inGrid() const {
    const ir::Value isBehind = out.make(ir::Op::Le, ir::Type::Bool, {out.constInt(ir::Type::I32, 0), token}, 0, line);
    const ir::Value isBefore = out.make(ir::Op::Lt, ir::Type::Bool, {token, productFrom(0)}, 0, line);
    return out.make(ir::Op::And, ir::Type::Bool, {isBehind, isBefore}, 0, line);
  }

private:
  ir::Value i32(ir::Op op, ir::Value a, ir::Value b) const { return out.make(op, ir::Type::I32, {a, b}, 0, line); }
  bool isNumber(ir::Value value, int64_t number) const { return out.isConst(value) && out.integer(value) == number; }
  ir::Value minus(ir::Value a, ir::Value b) const { return isNumber(b, 0) ? a : i32(ir::Op::Sub, a, b); }
  ir::Value over(ir::Value a, ir::Value b) const { return isNumber(b, 1) ? a : i32(ir::Op::FloorDiv, a, b); }

  ir::Value productFrom(unsigned axis) const {
    if (axis >= grid.extents.size()) return out.constInt(ir::Type::I32, 1);
    ir::Value product = out.numberOf(grid.extents[axis]);
    while (++axis < grid.extents.size()) product = i32(ir::Op::Mul, product, out.numberOf(grid.extents[axis]));
    return product;
  }

  ir::Module& out;
  const ir::Grid& grid;
  const uint32_t line;
  const ir::Value token; ///< counted from the first token of the grid
};

} // namespace attnc::passes
