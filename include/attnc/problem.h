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

/// Where the first query of a sequence stands: what mods see as q_idx of row i of q is that position plus i.
enum class QueryOffsets {
  None,        ///< at 0
  FromLengths, ///< so that the last query stands at the last of the sequence's keys: its KV length - Q_LEN
  Tensor,      ///< where a tensor of the launch says (Operands::qOffsets)
};

} // namespace attnc
