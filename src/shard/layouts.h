// Layouts: how the rows of the packed batch are dealt to ranks.
#pragma once

#include "attnc/shard.h"
#include "shard/live_rows.h"

#include <cstdint>
#include <vector>

namespace attnc::shard {

/// Intervals of each rank, in increasing order; neighbours are joined.
using Deal = std::vector<std::vector<ShardInterval>>;

/// Deals `tokens` in order, in whole slices of a grid, as evenly as possible. `slice` divides `tokens`.
Deal contiguous(int64_t tokens, int world, int64_t slice = 1);
/// Deals 2 x world intervals: the i-th and the i-th from the back to rank i.
Deal zigZag(int64_t tokens, int world);
/// Divides tokens into parts in their order, as evenly as possible.
Deal partsOf(const std::vector<ShardInterval>& intervals, int count);
/// Deals `perRank` x world chunks of equal length, by decreasing work. Each goes to the rank with the least work among
/// those that may take one more. A rank with its neighbour comes first if it has at most `slack` more, as a part of a
/// rank's mean work: neighbours share keys.
Deal greedy(const std::vector<LiveMask>& masks, int64_t tokens, int world, int perRank, double slack);

} // namespace attnc::shard
