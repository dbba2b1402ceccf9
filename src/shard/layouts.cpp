#include "shard/layouts.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <utility>

namespace attnc::shard {
namespace {

/// Returns chunk `index` of `count` that divide `tokens` as evenly as possible.
ShardInterval chunkOf(int64_t tokens, int64_t count, int64_t index) {
  return {tokens * index / count, tokens * (index + 1) / count};
}

/// Adds an interval behind the last one of a rank.
void addTo(std::vector<ShardInterval>& intervals, const ShardInterval& next) {
  if (next.begin >= next.end) return;
  if (!intervals.empty() && intervals.back().end == next.begin)
    intervals.back().end = next.end;
  else
    intervals.push_back(next);
}

/// Returns the work of each chunk: pairs of all layers.
std::vector<double> workOf(const std::vector<LiveMask>& masks, int64_t tokens, int64_t count) {
  std::vector<double> work;
  for (int64_t i = 0; i < count; ++i) {
    double pairs = 0;
    for (const LiveMask& mask : masks)
      eachRowIn(mask, chunkOf(tokens, count, i),
                [&](const LiveRow& row, int64_t rows) { pairs += mask.layers * row.pairs * double(rows); });
    work.push_back(pairs);
  }
  return work;
}

} // namespace

Deal contiguous(int64_t tokens, int world, int64_t slice) {
  Deal deal(static_cast<size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    const ShardInterval slices = chunkOf(tokens / slice, world, rank);
    addTo(deal[size_t(rank)], {slices.begin * slice, slices.end * slice});
  }
  return deal;
}

Deal partsOf(const std::vector<ShardInterval>& intervals, int count) {
  int64_t tokens = 0;
  for (const ShardInterval& interval : intervals) tokens += interval.end - interval.begin;
  Deal parts;
  for (int part = 0; part < count; ++part) {
    const ShardInterval wanted = chunkOf(tokens, count, part); // among the tokens
    std::vector<ShardInterval>& to = parts.emplace_back();
    int64_t before = 0;
    for (const ShardInterval& interval : intervals) {
      const int64_t shift = interval.begin - before;
      before += interval.end - interval.begin;
      addTo(to, {std::max(wanted.begin + shift, interval.begin), std::min(wanted.end + shift, interval.end)});
    }
  }
  return parts;
}

Deal zigZag(int64_t tokens, int world) {
  Deal deal(static_cast<size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    addTo(deal[size_t(rank)], chunkOf(tokens, 2 * int64_t(world), rank));
    addTo(deal[size_t(rank)], chunkOf(tokens, 2 * int64_t(world), 2 * int64_t(world) - 1 - rank));
  }
  return deal;
}

Deal greedy(const std::vector<LiveMask>& masks, int64_t tokens, int world, int perRank, double slack) {
  const int64_t count = int64_t(world) * perRank;
  const std::vector<double> work = workOf(masks, tokens, count);
  std::vector<int64_t> order(work.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return work[size_t(a)] > work[size_t(b)]; });
  const double room = slack * std::accumulate(work.begin(), work.end(), 0.0) / world;

  using Load = std::pair<double, int>;                                // work, rank
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least; // with loads of the past, which are skipped
  for (int rank = 0; rank < world; ++rank) least.emplace(0.0, rank);
  std::vector<double> load(size_t(world), 0);
  std::vector<int> owner(work.size(), -1), taken(size_t(world), 0);
  const auto isOpen = [&](int rank) { return rank >= 0 && taken[size_t(rank)] < perRank; };
  for (const int64_t chunk : order) {
    while (!isOpen(least.top().second) || least.top().first != load[size_t(least.top().second)]) least.pop();
    int rank = least.top().second;
    const double most = least.top().first + room;
    for (const int64_t next : {chunk - 1, chunk + 1}) {
      const int neighbour = next >= 0 && next < count ? owner[size_t(next)] : -1;
      if (!isOpen(neighbour) || load[size_t(neighbour)] > most) continue;
      rank = neighbour;
      break;
    }
    owner[size_t(chunk)] = rank;
    ++taken[size_t(rank)];
    least.emplace(load[size_t(rank)] += work[size_t(chunk)], rank);
  }
  Deal deal(static_cast<size_t>(world));
  for (int64_t chunk = 0; chunk < count; ++chunk)
    addTo(deal[size_t(owner[size_t(chunk)])], chunkOf(tokens, count, chunk));
  return deal;
}

} // namespace attnc::shard
