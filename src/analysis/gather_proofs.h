// Which gathers stay inside their tensor for every launch, and why others may not.
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
  /// The bounds if proven: "0 <= h <= H - 1". Else when it is: "inside if Q_LEN <= KV_LEN"; a counter-example, "q_idx =
  /// 7 gives index 7, extent 4", if extents of at most 2^24 show one; or what the index depends on. No final period.
  std::string why;
};

/// The budget of the search for counter-examples for all indices of a module, in operations: some tenths of a second.
inline constexpr uint64_t kMaxExampleWork = uint64_t(1) << 22;

/// Returns all indices of all loads that the outputs need, in the order of the arena. Readers of the tensor must clamp
/// indices that are not proven. Costs at most kMaxExampleWork operations for counter-examples, plus time linear in the
/// module; `work`, if given, receives the operations spent. Intervals::provesInside answers for one index without a
/// search.
std::vector<GatherProof> proveGathers(const ir::Module& module, const ir::Pins& pins = {}, uint64_t* work = nullptr);

} // namespace attnc::analysis
