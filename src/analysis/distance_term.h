// A penalty that is linear in the distance of q_idx and kv_idx, s * (kv_idx - q_idx), as a term of score_mod: ALiBi and
// similar penalties.
//
// In: a module after the passes. Out: the term's place and its parts. f32 positions occur nowhere else.
#pragma once

#include "ir/ir.h"

#include <llvm/ADT/SmallVector.h>

#include <optional>
#include <utility>

namespace attnc::analysis {

struct DistanceTerm {
  llvm::SmallVector<std::pair<ir::Value, unsigned>, 4> path; ///< from the score to the term: sums and their operands
  std::optional<ir::Value> slope;                            ///< s, known per head; unset: 1
  bool isReversed = false;                                   ///< s * (q_idx - kv_idx)
  bool isSubtracted = false;                                 ///< whether the sum subtracts the term
  ir::Value q, kv;                                           ///< f32(q_idx), f32(kv_idx)
  uint32_t line = 0;                                         ///< line of the mod's text
};

/// Returns nullopt if score_mod is not a sum with this term, or uses f32 positions elsewhere.
std::optional<DistanceTerm> distanceTerm(const ir::Module& module);

} // namespace attnc::analysis
