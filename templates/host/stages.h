// How many CTAs the stages of a plan have.
//
// Host code, compiled twice: with the library (src/plan), and as text in the launcher of an emitted kernel. There,
// host/types.h stands for the library's types. So it names only members that both have, and includes nothing.
#pragma once

namespace attnc::plan {

int64_t perQTile(const Stage& stage, const LaunchOperands& operands, const Device&) {
  return operands.problem.qHeads * qTilesOf(operands, stage.config.blockM);
}

int64_t perKvTile(const Stage& stage, const LaunchOperands& operands, const Device&) {
  return operands.problem.kvHeads * kvTilesOf(operands, stage.config.blockN);
}

int64_t perKvTileOfEachQHead(const Stage& stage, const LaunchOperands& operands, const Device& device) {
  return perKvTile(stage, operands, device) * sharersOf(operands);
}

int64_t perQRow(const Stage& stage, const LaunchOperands& operands, const Device&) {
  return ceilDiv(operands.q.shape[0] * operands.problem.qHeads * rowsOfQ(operands), stage.config.warps);
}

int64_t perKvRow(const Stage& stage, const LaunchOperands& operands, const Device&) {
  return ceilDiv(operands.k.shape[0] * operands.problem.kvHeads * rowsOfKv(operands), stage.config.warps);
}

int64_t perMaskRow(const Stage&, const LaunchOperands& operands, const Device&) {
  const BlockMaskShape& shape = operands.lists->shape;
  return shape.batch * shape.heads * shape.qBlocks();
}

int64_t perMaskColumn(const Stage& stage, const LaunchOperands& operands, const Device&) {
  const BlockMaskShape& shape = operands.lists->shape;
  return ceilDiv(shape.batch * shape.heads * shape.kvBlocks(), stage.config.warps);
}

} // namespace attnc::plan
