// Which gathers stay inside their tensor for every launch, and what happens to the others.
#pragma once

#include "passes/intervals.h"

#include <string>
#include <vector>

namespace attnc::passes {

/// One index of one load.
struct GatherProof {
  ir::Value load;
  unsigned axis = 0;
  bool proven = false;
  /// Proven: the bounds, "0 <= h <= H - 1". Else why not: a counter-example, "q_idx = 7, kv_idx = 0 gives index 7,
  /// extent 4", where example extents (of at most 2^24) show one; or what the index depends on. No final period.
  std::string why;
};

/// All indices of all loads that the roots need, in the order of the arena. An index that is not proven must be clamped
/// by whoever reads the tensor. Costs: the search for counter-examples evaluates each unproven index some thousand
/// times; Intervals::provesInside answers for one index without it.
std::vector<GatherProof> proveGathers(const ir::Module& module, const Pins& pins = {});

} // namespace attnc::passes
