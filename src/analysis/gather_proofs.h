// Which gathers stay inside their tensor for every launch, and what happens to the others.
#pragma once

#include "analysis/intervals.h"

#include <string>
#include <vector>

namespace attnc::analysis {

/// One index of one load.
struct GatherProof {
  ir::Value load;
  unsigned axis = 0;
  bool proven = false;
  /// Proven: the bounds, "0 <= h <= H - 1". Else why not: a counter-example, "q_idx = 7, kv_idx = 0 gives index 7,
  /// extent 4", where example extents (of at most 2^24) show one; or what the index depends on. No final period.
  std::string why;
};

/// What the search for counter-examples may do for all indices of a module, in operations: some tenths of a second.
inline constexpr uint64_t kMaxExampleWork = uint64_t(1) << 22;

/// All indices of all loads that the outputs need, in the order of the arena. An index that is not proven must be
/// clamped by whoever reads the tensor. Costs: at most kMaxExampleWork operations for counter-examples, beside what is
/// linear in the module; `work`, if given, receives how many. Intervals::provesInside answers for one index without
/// any.
std::vector<GatherProof> proveGathers(const ir::Module& module, const ir::Pins& pins = {}, uint64_t* work = nullptr);

} // namespace attnc::analysis
