#include "shard/rank_stages.h"

#include <algorithm>

namespace attnc::shard {
namespace {

/// Returns where a token of one interval lies among those of all.
int64_t placeOf(const std::vector<ShardInterval>& intervals, int64_t token) {
  int64_t before = 0;
  for (const ShardInterval& interval : intervals) {
    if (interval.begin <= token && token < interval.end) return before + token - interval.begin;
    before += interval.end - interval.begin;
  }
  return before;
}

void join(std::vector<ShardInterval>& intervals, const ShardInterval& next) {
  if (!intervals.empty() && intervals.back().end == next.begin)
    intervals.back().end = next.end;
  else
    intervals.push_back(next);
}

} // namespace

TokenPlaces placesOf(const std::vector<ShardInterval>& intervals, const std::vector<int64_t>& starts) {
  TokenPlaces all;
  for (const ShardInterval& interval : intervals)
    for (int64_t token = interval.begin; token < interval.end;) {
      const auto next = std::upper_bound(starts.begin(), starts.end(), token); // behind empty sequences
      const int64_t start = *(next - 1), end = std::min(interval.end, *next);
      all.sequences.insert(all.sequences.end(), size_t(end - token), int32_t(next - starts.begin() - 1));
      for (; token < end; ++token) all.positions.push_back(int32_t(token - start));
    }
  return all;
}

std::vector<RankStage> stagesOf(const ShardPlan& plan, const ShardMaskPlan& mask, int rank) {
  int last = 0;
  for (const ShardWork& work : mask.ranks)
    for (const ShardPiece& piece : work.pieces) last = std::max(last, piece.stage);
  std::vector<RankStage> stages(size_t(last) + 1);
  const ShardTokens own = plan.teamOf(rank);
  stages[0].keys = own.keys;
  stages[0].keyCount = own.keyCount();
  for (int other = 0; other < plan.world; ++other)
    for (const ShardPiece& piece : mask.ranks[size_t(other)].pieces) {
      RankStage& stage = stages[size_t(piece.stage)];
      const int64_t count = piece.keys.end - piece.keys.begin;
      if (other == rank) stage.hasWork = own.rowCount() > 0;
      if (piece.stage == 0) continue;
      if (other == rank) {
        stage.receives.push_back({piece.from, stage.keyCount, count});
        stage.keyCount += count;
        join(stage.keys, piece.keys);
      } else if (piece.from == rank) {
        stage.sends.push_back({other, placeOf(own.keys, piece.keys.begin), count});
      }
    }
  return stages;
}

} // namespace attnc::shard
