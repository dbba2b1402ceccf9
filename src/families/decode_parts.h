// The parts into which decode kernels divide their work, as far as shapes determine them.
#pragma once

#include "analysis/mod_facts.h"
#include "launch/launch_operands.h"

#include <algorithm>

namespace attnc::plan {

/// Whether an earlier launch lists the live steps: kListsSteps of templates/algo/decode_work.cuh.
inline bool decodeListsSteps(const analysis::ModFacts& facts, const KernelOptions& options) {
  return facts.masks && !facts.kvEdges && !options.features.has(Feature::Ragged);
}

/// Most CTAs that are started: GPUs run no more at once, and parts take memory.
constexpr int64_t kMostParts = 512;

/// Returns the packed rows of a KV head: of one batch entry, or of all sequences of a ragged batch.
inline int64_t packedRows(const LaunchOperands& operands) {
  const ProblemShape& problem = operands.problem;
  return problem.kvHeads ? rowsOfQ(operands) * (problem.qHeads / problem.kvHeads) : 0;
}

/// Returns the tiles of `rows` packed rows of all (batch, KV head). At most 2^40, which no launch accepts, so that
/// products with lengths do not overflow.
inline int64_t packedTiles(const LaunchOperands& operands, int rows) {
  const ProblemShape& problem = operands.problem;
  const int64_t packed = packedRows(operands);
  const auto times = [](int64_t a, int64_t b) {
    constexpr int64_t kMost = int64_t(1) << 40;
    return b && a > kMost / b ? kMost : std::min(a * b, kMost);
  };
  if (operands.cuSeqlensQ) // slots: templates/algo/sequence.cuh
    return problem.batch ? times(problem.kvHeads, packed / rows + problem.batch) : 0;
  return times(times(problem.batch, problem.kvHeads), (packed + rows - 1) / rows);
}

/// Returns the 32-bit words that hold one bit per step of `columns` columns, for a tile of packed rows: at least 1.
inline int64_t stepWords(const LaunchOperands& operands, int columns) {
  return std::max<int64_t>((operands.problem.kvLen + 32 * columns - 1) / (32 * columns), 1);
}

/// Returns how many CTAs may find work: at most one per 32 columns of KV.
inline int64_t mostParts(const LaunchOperands& operands, int rows) {
  return std::min(packedTiles(operands, rows) * std::max<int64_t>((operands.problem.kvLen + 31) / 32, 1), kMostParts);
}

} // namespace attnc::plan
