// A plan, as one rank sees it: its stages, with the keys of each and what travels before it.
#pragma once

#include "attnc/shard.h"
#include "attnc/tensor.h"

#include <cstdint>
#include <vector>

namespace attnc::shard {

/// Keys that travel in one piece.
struct Parcel {
  int peer = 0;
  int64_t first = 0, count = 0; ///< where they lie: among the own keys of the rank's team if sent, else the stage's
};

/// What one rank does in one stage.
struct RankStage {
  std::vector<ShardInterval> keys; ///< positions of the stage's keys, as they lie in memory; neighbours are joined
  int64_t keyCount = 0;
  bool hasWork = false;                ///< whether any pair may live
  std::vector<Parcel> sends, receives; ///< messages between two ranks are in the same order on both
};

/// Returns the stages of a rank for a mask. All ranks have equally many.
std::vector<RankStage> stagesOf(const ShardPlan& plan, const ShardMaskPlan& mask, int rank);

/// Where tokens are.
struct TokenPlaces {
  std::vector<int32_t> positions; ///< in their sequence
  std::vector<int32_t> sequences;
};

/// Returns the places of all tokens, in order. `starts`: ShardPlan::qStarts or kvStarts.
TokenPlaces placesOf(const std::vector<ShardInterval>& intervals, const std::vector<int64_t>& starts);

} // namespace attnc::shard
