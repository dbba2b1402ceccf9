// Parameters that all backward kernels share, with those in the workspace.
//
// Host code, compiled twice: with the library (src/plan), and as text in the launcher of an emitted kernel. There,
// host/types.h stands for the library's types. So it names only members that both have, and includes nothing.
#pragma once

namespace attnc::plan {

static size_t deltaBytes(const LaunchOperands& operands) {
  return sizeof(float) * size_t(operands.q.shape[0]) * size_t(operands.problem.qHeads) * size_t(rowsOfQ(operands));
}

static constexpr int kDeltaRows = 64;       // rows of q
static constexpr size_t kCounterBytes = 16; // of LargeRows, rounded up to align the bytes after them

BackwardParams backwardParams(const LaunchOperands& operands, const WorkspaceView& workspace) {
  BackwardParams p = backwardParams(operands);
  p.delta = static_cast<float*>(workspace.at(Use::Delta));
  p.row_sums = static_cast<float*>(workspace.at(Use::RowSums));
  p.large_rows.counters = static_cast<int*>(workspace.at(Use::LargeRows));
  p.large_rows.chunks = static_cast<unsigned char*>(workspace.at(Use::LargeRows)) + kCounterBytes;
  p.diagonals = static_cast<float*>(workspace.at(Use::DiagonalSums));
  return p;
}

static size_t largeRowBytes(const LaunchOperands& operands) {
  return kCounterBytes + size_t(operands.problem.qHeads) * size_t(qTilesOf(operands, kDeltaRows)) * (kDeltaRows / 32);
}

} // namespace attnc::plan
