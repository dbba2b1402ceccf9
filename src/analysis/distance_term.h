// A penalty that is linear in the distance of q_idx and kv_idx, s * (kv_idx - q_idx), as a term of score_mod: ALiBi and
// its like.
//
// In: a module after the passes. Out: where the term stands, and its parts. f32 positions occur nowhere else.
#pragma once

#include "ir/ir.h"

#include <llvm/ADT/SmallVector.h>

#include <optional>
#include <utility>

namespace attnc::analysis {

struct DistanceTerm {
  llvm::SmallVector<std::pair<ir::Value, unsigned>, 4> path; ///< from the score to the term: a sum, and which operand
  std::optional<ir::Value> slope;                            ///< s, known per head; none: 1
  bool isReversed = false;                                   ///< s * (q_idx - kv_idx)
  bool isSubtracted = false;                                 ///< the score has it with a minus
  ir::Value q, kv;                                           ///< f32(q_idx), f32(kv_idx)
  uint32_t line = 0;                                         ///< of the mod's text
};

/// Nothing where score_mod is no sum with such a term, or uses f32 positions elsewhere.
std::optional<DistanceTerm> distanceTerm(const ir::Module& module);

} // namespace attnc::analysis
