// The size of an attention problem.
#pragma once

#include <cstdint>

namespace attnc {

/// Largest extent of an attention problem.
inline constexpr int64_t kMaxExtent = int64_t(1) << 24;

/// Extents of an attention problem, which a mod sees as B, H, HKV, Q_LEN and KV_LEN. Each is 0 .. kMaxExtent. qHeads is
/// a multiple of kvHeads.
struct ProblemShape {
  int64_t batch = 1, qHeads = 1, kvHeads = 1, qLen = 1, kvLen = 1; ///< B, H, HKV, Q_LEN, KV_LEN.
  friend bool operator==(const ProblemShape&, const ProblemShape&) = default;
};

/// Position of the first query of a sequence. Mods see q_idx of row i of q as this position plus i.
enum class QueryOffsets {
  None,        ///< Position 0.
  FromLengths, ///< KV length of the sequence - Q_LEN, so that the last query stands at the last key.
  Tensor,      ///< Position from a tensor of the launch (Operands::qOffsets).
};

} // namespace attnc
