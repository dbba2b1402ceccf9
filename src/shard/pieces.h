// Pieces: which keys a rank needs from whom, in which stage, and what each stage costs.
#pragma once

#include "attnc/shard.h"
#include "shard/layouts.h"
#include "shard/live_rows.h"

#include <cstdint>
#include <vector>

namespace attnc::shard {

/// Keys of one owner in one interval.
struct OwnedKeys {
  ShardInterval keys;
  int owner = 0;
};

/// Returns the keys of all ranks, in increasing order.
std::vector<OwnedKeys> ownedKeys(const Deal& keys);

/// A piece, with the pairs of query and key that live in it.
struct Need {
  ShardPiece piece;
  double pairs = 0;
};

/// Returns the live keys of a rank, cut at owners, in increasing order. Stages are not set.
std::vector<Need> needsOf(const LiveMask& mask, const std::vector<ShardInterval>& rows,
                          const std::vector<OwnedKeys>& owned);

/// Extends needs to whole slices of a grid. Owners have whole slices.
void takeSlices(std::vector<Need>& needs, int64_t slice);

/// Gives each need a stage: own keys stage 0, the others stages 1 to `stages`, with about as many keys each. Owners
/// come in the order of their distance behind `rank`, so that at any time ranks receive from different ranks.
void setStages(std::vector<Need>& needs, int rank, int world, int stages);

/// What a rank does in one stage.
struct StageCost {
  double pairs = 0;
  int64_t keysReceived = 0, keysSent = 0;
  ShardInterval rows = {}; ///< as ShardWork::stageRows
};

/// Returns the costs of stages 0 to `stages`, without keysSent. `needs` are sorted by key.
std::vector<StageCost> stageCosts(const LiveMask& mask, const std::vector<ShardInterval>& rows,
                                  const std::vector<Need>& needs, int stages);

/// Returns the predicted seconds of one layer of a rank, of its group of heads. `stages`: of all heads. The transfer of
/// a stage begins when the one before has arrived and its buffer is free: there are two buffers. Partial results of a
/// row are merged in memory.
double secondsOf(const std::vector<StageCost>& stages, const ProblemShape& problem, const ShardOptions& options);

/// Returns the bytes of a row of k and v in all KV heads and batch entries that share a layout.
double bytesOfKey(const ProblemShape& problem, const ShardOptions& options);
/// Returns the bytes that a team receives, over all its ranks, when heads and rows are exchanged within it.
double bytesOfHeads(int64_t rows, int64_t keys, const ProblemShape& problem, const ShardOptions& options);
/// Returns the seconds that these pairs take.
double secondsOfPairs(double pairs, const ShardOptions& options);

} // namespace attnc::shard
