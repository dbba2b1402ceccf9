// In: any module. Out: the same without grid coordinates, for kernels that do not use grids.
//
//   grid [@HEIGHT, 128] before 77
//   %0 = coord i32 grid0.0, %q_idx     =>   %0 = sub i32 %q_idx, 77
//   %1 = coord i32 grid0.1, %q_idx          %1 = floor_div i32 %0, 128
//                                           %2 = mod i32 %0, 128
//
// The declarations stay: bind() checks launches against them, and analyses bound their numbers by them.
#include "passes/grids/place_writer.h"
#include "passes/pass.h"
#include "passes/rebuild.h"

namespace attnc::passes {

Status lowerGrids(ir::Module& module, const PassContext&) {
  if (!ir::uses(module, ir::Op::Coord) && !ir::uses(module, ir::Op::InGrid)) return {};
  module = rebuild(module, [](ir::Module& out, const ir::Node& node) {
    if (node.op == ir::Op::Coord) return PlaceWriter(out, node).coord(ir::GridAxis::of(node).axis);
    if (node.op == ir::Op::InGrid) return PlaceWriter(out, node).inGrid();
    return keep(out, node);
  });
  return {};
}

} // namespace attnc::passes
