// How many rows and batch entries the operands of a launch have.
//
// Host code, compiled twice: with the library (src/plan), and as text in the launcher of an emitted kernel. There,
// host/types.h stands for the library's types. So it names only members that both have, and includes nothing.
#pragma once

namespace attnc::plan {

/// Return the rows of q, or of k and v, in one (batch, head) of the tensors. For a ragged batch, these are the rows of
/// all sequences; with pages, the rows of one sequence.
inline int64_t rowsOfQ(const LaunchOperands& operands) { return operands.q.shape[2]; }
inline int64_t rowsOfKv(const LaunchOperands& operands) {
  return operands.pageTable ? operands.problem.kvLen : operands.k.shape[2];
}

/// Returns the batch entries of k and v: fewer than the problem's if they are broadcast.
inline int64_t kvBatchOf(const LaunchOperands& operands) {
  return operands.cuSeqlensQ ? operands.problem.batch : operands.k.shape[0];
}

/// Returns how many query heads share a KV head, over all batches that share K and V; at least 1,
/// since somebody must write the gradients of k and v.
inline int64_t sharersOf(const LaunchOperands& operands) {
  const ProblemShape& problem = operands.problem;
  if (problem.kvHeads == 0 || problem.qHeads == 0 || problem.batch == 0) return 1;
  return (kvBatchOf(operands) == problem.batch ? 1 : problem.batch) * (problem.qHeads / problem.kvHeads);
}

} // namespace attnc::plan
