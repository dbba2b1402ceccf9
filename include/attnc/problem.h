// The size of an attention problem.
#pragma once

#include <cstdint>

namespace attnc {

/// Extents of an attention problem: what a mod sees as B, H, HKV, Q_LEN and KV_LEN. 0 .. 2^24 each; qHeads is a
/// multiple of kvHeads.
struct ProblemShape {
  int64_t batch = 1, qHeads = 1, kvHeads = 1, qLen = 1, kvLen = 1;
  friend bool operator==(const ProblemShape&, const ProblemShape&) = default;
};

} // namespace attnc
