// Parameters of backward_sm80.cu.
//
// Host code, compiled twice: with the library (src/plan), and as text in the launcher of an emitted kernel. There,
// host/types.h stands for the library's types. So it names only members that both have, and includes nothing.
#pragma once

namespace attnc::plan {

/// Mirrors DqSums of templates/algo/d_q_sums_mma.cuh, for any tile here: a tile's columns are dealt to at most four
/// warps in groups of 16, and its rows come in multiples of 128.
static size_t oneWalkSumBytes(const LaunchOperands& operands) {
  const uint64_t columns = (uint64_t(operands.q.shape[3]) + 63) / 64 * 64;
  return sizeof(float) * size_t(operands.problem.qHeads) * size_t(qTilesOf(operands, 128)) * 128 * columns;
}

static BackwardParamsSm80 backwardParamsSm80(const LaunchOperands& operands, const WorkspaceView& workspace) {
  return {backwardParams(operands, workspace), static_cast<float*>(workspace.at(Use::DqSums))};
}

} // namespace attnc::plan
