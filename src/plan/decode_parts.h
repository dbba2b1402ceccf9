// The parts that decode kernels divide their work into, as far as shapes tell.
#pragma once

#include "analysis/mod_facts.h"
#include "plan/launch_operands.h"

#include <llvm/Support/MathExtras.h>

#include <algorithm>

namespace attnc::plan {

/// Whether a launch before it lists the steps that live: kListsSteps of templates/algo/decode_work.cuh.
inline bool decodeListsSteps(const analysis::ModFacts& facts, const KernelOptions& options) {
  return facts.masks && !facts.kvEdges && !options.ragged;
}

/// More CTAs than that are not started: GPUs run no more at once, and parts take memory.
constexpr int64_t kMostParts = 512;

/// Packed rows of a KV head, of one batch entry; of a ragged batch, of all sequences.
inline int64_t packedRows(const LaunchOperands& operands) {
  const ProblemShape& problem = operands.problem;
  return problem.kvHeads ? rowsOfQ(operands) * (problem.qHeads / problem.kvHeads) : 0;
}

/// Tiles of `rows` packed rows, of all (batch, KV head). At most 2^40, which no launch takes, so that products with
/// lengths do not overflow.
inline int64_t packedTiles(const LaunchOperands& operands, int rows) {
  const ProblemShape& problem = operands.problem;
  const int64_t packed = packedRows(operands);
  const auto times = [](int64_t a, int64_t b) {
    return int64_t(std::min(llvm::SaturatingMultiply(uint64_t(a), uint64_t(b)), uint64_t(1) << 40));
  };
  if (operands.cuSeqlensQ) // slots: templates/algo/sequence.cuh
    return problem.batch ? times(problem.kvHeads, packed / rows + problem.batch) : 0;
  return times(times(problem.batch, problem.kvHeads), (packed + rows - 1) / rows);
}

/// Words of a bit for each step of `columns` columns, of a tile of packed rows: at least 1.
inline int64_t stepWords(const LaunchOperands& operands, int columns) {
  return std::max<int64_t>((operands.problem.kvLen + 32 * columns - 1) / (32 * columns), 1);
}

/// CTAs that may find work: no more than one for 32 columns of KV.
inline int64_t mostParts(const LaunchOperands& operands, int rows) {
  return std::min(packedTiles(operands, rows) * std::max<int64_t>((operands.problem.kvLen + 31) / 32, 1), kMostParts);
}

} // namespace attnc::plan
