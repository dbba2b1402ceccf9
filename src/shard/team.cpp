#include "shard/team.h"

#include <algorithm>
#include <numeric>

namespace attnc::shard {

Team::Team(const ShardPlan& plan, int rank)
    : first(rank / plan.headGroups * plan.headGroups), member(size_t(rank - first)) {
  for (int i = 0; i < plan.headGroups; ++i) {
    rows.push_back(plan.ranks[size_t(first + i)].rowCount());
    keys.push_back(plan.ranks[size_t(first + i)].keyCount());
  }
}

int64_t Team::rowCount(bool ofKeys) const {
  const std::vector<int64_t>& counts = ofKeys ? keys : rows;
  return std::accumulate(counts.begin(), counts.end(), int64_t(0));
}

size_t Team::stagingBytes(const std::vector<Swap>& swaps) {
  size_t bytes = 0;
  for (const Swap& swap : swaps)
    bytes += size_t(std::max(swap.own.elements(), swap.team.elements()) * dtypeBytes(swap.own.dtype));
  return bytes;
}

Team::Block Team::ofOwn(const Swap& swap, int64_t batch, size_t other) const {
  const TensorView& own = swap.own;
  const size_t element = size_t(dtypeBytes(own.dtype)), heads = size_t(own.shape[1] / size()),
               count = size_t(own.shape[2]);
  if (own.rank == 3) {
    const size_t bytes = count * element;
    return {at(own.data, (size_t(batch * own.shape[1]) + other * heads) * bytes), bytes, bytes, heads};
  }
  const size_t bytes = heads * size_t(own.shape[3]) * element;
  return {at(own.data, size_t(batch * own.stride[0]) * element + other * bytes), size_t(size()) * bytes, bytes, count};
}

Team::Block Team::ofTeam(const Swap& swap, int64_t batch, size_t other) const {
  const TensorView& team = swap.team;
  const std::vector<int64_t>& counts = swap.isOfKeys ? keys : rows;
  const size_t element = size_t(dtypeBytes(team.dtype)), heads = size_t(team.shape[1]), all = size_t(team.shape[2]),
               count = size_t(counts[other]),
               before = size_t(std::accumulate(counts.begin(), counts.begin() + std::ptrdiff_t(other), int64_t(0)));
  if (team.rank == 3)
    return {at(team.data, (size_t(batch) * heads * all + before) * element), all * element, count * element, heads};
  const size_t bytes = heads * size_t(team.shape[3]) * element;
  return {at(team.data, (size_t(batch) * all + before) * bytes), bytes, bytes, count};
}

Status Team::exchange(bool givesHeads, const std::vector<Swap>& swaps, char* staging, const Run& run) const {
  struct Copy {
    Block to, from;
  };
  std::vector<Copy> packs, unpacks;
  std::vector<ShardMessage> sends, receives;
  // Messages are one run each. Own rows are filled in the end.
  const auto runOf = [&](const Block& block, bool mayBeItself) {
    if (mayBeItself && block.isOneRun()) return block;
    const Block packed{staging, block.bytes, block.bytes, block.count};
    staging += block.size();
    return packed;
  };
  for (const Swap& swap : swaps)
    for (int64_t batch = 0; batch < swap.own.shape[0]; ++batch)
      for (size_t other = 0; other < rows.size(); ++other) {
        const Block own = ofOwn(swap, batch, other), team = ofTeam(swap, batch, other);
        const Block& from = givesHeads ? own : team;
        const Block& to = givesHeads ? team : own;
        if (other == member) {
          unpacks.push_back({to, from});
          continue;
        }
        if (from.size()) {
          const Block going = runOf(from, true);
          if (going.data != from.data) packs.push_back({going, from});
          sends.push_back({first + int(other), going.data, going.size()});
        }
        if (to.size()) {
          const Block coming = runOf(to, givesHeads);
          if (coming.data != to.data) unpacks.push_back({to, coming});
          receives.push_back({first + int(other), coming.data, coming.size()});
        }
      }
  const auto copy = [&](const std::vector<Copy>& copies) -> Status {
    for (const Copy& one : copies)
      ATTNC_TRY(run.machine.copyRows({one.to.data, one.to.pitch}, {one.from.data, one.from.pitch}, one.from.bytes,
                                     one.from.count, run.stream));
    return {};
  };
  ATTNC_TRY(copy(packs));
  ATTNC_TRY(run.exchange(sends, receives));
  ATTNC_TRY(run.arrive());
  return copy(unpacks);
}

} // namespace attnc::shard
