// Shared memory for rows of q, in backward kernels whose tiles own KV columns.
#pragma once

#include "plan/kernel_mod.h"

#include <llvm/Support/MathExtras.h>

namespace attnc::plan {

/// Mirrors RowTable of templates/algo/transposed_scores.cuh.
inline int rowTableBytes(int rows, const KernelMod& mod) {
  const analysis::ModFacts& facts = mod.facts;
  const bool readsIntervals = facts.masks && facts.kvEdges;
  const bool readsRows = facts.form == analysis::ScoreForm::General || (facts.masks && !facts.kvEdges) ||
                         mod.module.output(ir::kProbGradient);
  return int(llvm::alignTo(rows * (8 + (readsIntervals ? 8 : 0) + (readsRows ? mod.source.rowBytes : 0)), 16));
}

} // namespace attnc::plan
