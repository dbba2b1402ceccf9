// The picture of a plan of shards: who computes which blocks, and whose keys they need.
#pragma once

#include "show/picture.h"

#include "attnc/explain.h"
#include "attnc/shard.h"

#include <string>
#include <vector>

namespace attnc::cli {

/// Draws the blocks of a map in the colours of the ranks that compute them. Blocks whose keys travel are lighter.
/// Ranks beyond the eighth repeat the colours. Precondition: the plan has one sequence, of the map's lengths.
Picture shardPicture(const ShardPlan& plan, const BlockMap& map, const std::vector<std::string>& headings);

} // namespace attnc::cli
