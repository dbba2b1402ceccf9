#include "shard/pieces.h"

#include <algorithm>
#include <bit>

namespace attnc::shard {

std::vector<OwnedKeys> ownedKeys(const Deal& keys) {
  std::vector<OwnedKeys> all;
  for (size_t rank = 0; rank < keys.size(); ++rank)
    for (const ShardInterval& interval : keys[rank]) all.push_back({interval, int(rank)});
  std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.keys.begin < b.keys.begin; });
  return all;
}

namespace {

/// A change, at a key, of how many rows attend: `live` counts runs, so that it is exact.
struct Change {
  int64_t at = 0;
  int64_t live = 0;
  double rows = 0; // rows times weight
};

/// Returns the changes at increasing keys.
std::vector<Change> changesOf(const LiveMask& mask, const std::vector<ShardInterval>& rows) {
  std::vector<Change> changes;
  for (const ShardInterval& interval : rows)
    eachRowIn(mask, interval, [&](const LiveRow& row, int64_t count) {
      for (size_t i = row.firstKeys; i < row.endKeys; ++i) {
        const LiveKeys& keys = mask.keys[i];
        changes.push_back({keys.begin, 1, keys.weight * double(count)});
        changes.push_back({keys.end, -1, -keys.weight * double(count)});
      }
    });
  std::sort(changes.begin(), changes.end(), [](auto& a, auto& b) { return a.at < b.at; });
  return changes;
}

} // namespace

std::vector<Need> needsOf(const LiveMask& mask, const std::vector<ShardInterval>& rows,
                          const std::vector<OwnedKeys>& owned) {
  std::vector<Need> needs;
  auto owner = owned.begin();
  const auto add = [&](int64_t begin, int64_t end, double count) {
    while (begin < end) {
      while (owner->keys.end <= begin) ++owner;
      const int64_t cut = std::min(end, owner->keys.end);
      Need* last = needs.empty() ? nullptr : &needs.back();
      // Joined within an interval of the owner only, so that its keys lie together there.
      if (last && last->piece.keys.end == begin && begin > owner->keys.begin)
        last->piece.keys.end = cut;
      else
        last = &needs.emplace_back(Need{{0, owner->owner, {begin, cut}}});
      last->pairs += count * double(cut - begin);
      begin = cut;
    }
  };
  int64_t live = 0, from = 0;
  double count = 0;
  for (const Change& change : changesOf(mask, rows)) {
    if (live > 0 && from < change.at) add(from, change.at, count);
    from = change.at;
    live += change.live;
    count = live > 0 ? count + change.rows : 0;
  }
  return needs;
}

void takeSlices(std::vector<Need>& needs, int64_t slice) {
  std::vector<Need> whole;
  for (Need need : needs) {
    ShardInterval& keys = need.piece.keys;
    keys = {keys.begin / slice * slice, (keys.end + slice - 1) / slice * slice};
    Need* const last = whole.empty() ? nullptr : &whole.back();
    if (!last || last->piece.from != need.piece.from || last->piece.keys.end < keys.begin) {
      whole.push_back(need);
      continue;
    }
    last->piece.keys.end = std::max(last->piece.keys.end, keys.end);
    last->pairs += need.pairs;
  }
  needs = std::move(whole);
}

void setStages(std::vector<Need>& needs, int rank, int world, int stages) {
  std::vector<int64_t> keysAt(size_t(world), 0); // by distance of the owner
  const auto distance = [&](const Need& need) { return size_t((need.piece.from - rank + world) % world); };
  for (const Need& need : needs) keysAt[distance(need)] += need.piece.keys.end - need.piece.keys.begin;
  int64_t all = 0;
  for (size_t at = 1; at < keysAt.size(); ++at) all += keysAt[at];
  std::vector<int> stageAt(size_t(world), 0);
  int64_t before = 0;
  for (size_t at = 1; at < keysAt.size(); ++at) {
    const int64_t middle = before + keysAt[at] / 2;
    stageAt[at] = 1 + int(all ? std::min<int64_t>(stages - 1, middle * stages / all) : 0);
    before += keysAt[at];
  }
  for (Need& need : needs) need.piece.stage = stageAt[distance(need)];
}

std::vector<StageCost> stageCosts(const LiveMask& mask, const std::vector<ShardInterval>& rows,
                                  const std::vector<Need>& needs, int stages) {
  std::vector<StageCost> costs(size_t(stages) + 1);
  for (const Need& need : needs) {
    StageCost& cost = costs[size_t(need.piece.stage)];
    cost.pairs += need.pairs;
    if (need.piece.stage > 0) cost.keysReceived += need.piece.keys.end - need.piece.keys.begin;
  }
  const uint64_t everyStage = (uint64_t(2) << stages) - 1;
  int64_t place = 0; // of the next row
  for (const ShardInterval& interval : rows)
    eachRowIn(mask, interval, [&](const LiveRow& row, int64_t count) {
      uint64_t met = 0; // bits of stages
      for (size_t i = row.firstKeys; i < row.endKeys && met != everyStage; ++i) {
        const LiveKeys& keys = mask.keys[i];
        auto need = std::partition_point(needs.begin(), needs.end(),
                                         [&](const Need& one) { return one.piece.keys.end <= keys.begin; });
        for (; need != needs.end() && need->piece.keys.begin < keys.end && met != everyStage; ++need)
          met |= uint64_t(1) << need->piece.stage;
      }
      for (int stage = 0; stage <= stages; ++stage)
        if (met >> stage & 1) {
          ShardInterval& span = costs[size_t(stage)].rows;
          span = {span.begin == span.end ? place : span.begin, place + count};
        }
      place += count;
    });
  return costs;
}

double bytesOfKey(const ProblemShape& problem, const ShardOptions& options) {
  const double entries = options.lengths.empty() ? double(problem.batch) : 1;
  return entries * double(problem.kvHeads) * (options.headDim + options.headDimV) * options.elementBytes;
}

double bytesOfHeads(int64_t rows, int64_t keys, const ProblemShape& problem, const ShardOptions& options) {
  const double entries = options.lengths.empty() ? double(problem.batch) : 1;
  const double ofRows = double(rows) * double(problem.qHeads) + double(keys) * double(problem.kvHeads);
  const double others = 1 - 1.0 / options.headGroups; // a part stays where it is
  return others * entries * ofRows * (options.headDim + options.headDimV) * options.elementBytes;
}

double secondsOfPairs(double pairs, const ShardOptions& options) {
  const double passes = options.backward ? 2.5 : 1; // five products for two
  return passes * 2 * pairs * (options.headDim + options.headDimV) / options.flops;
}

double secondsOf(const std::vector<StageCost>& stages, const ProblemShape& problem, const ShardOptions& options) {
  const double share = 1.0 / options.headGroups;
  const double keyBytes =
      share * bytesOfKey(problem, options) * (options.backward ? 2 : 1); // and their gradients, back
  const double entries = options.lengths.empty() ? double(problem.batch) : 1;
  // An earlier partial result is read in f32, and the merged one is written.
  const double rowBytes = share * 2 * 4 * entries * double(problem.qHeads) * options.headDimV;
  double arrived = 0, ended = 0, endedBefore = 0; // of this stage's keys; of the attention of one and two stages ago
  bool isFirst = true;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const StageCost& cost = stages[stage];
    if (const int64_t keys = std::max(cost.keysReceived, cost.keysSent))
      arrived = std::max(arrived, endedBefore) + options.latency + double(keys) * keyBytes / options.bandwidth;
    double seconds = secondsOfPairs(share * cost.pairs, options);
    const int64_t rows = cost.rows.end - cost.rows.begin;
    if (!isFirst) seconds += double(rows) * rowBytes / options.memory;
    isFirst = isFirst && rows == 0;
    endedBefore = ended;
    ended = std::max(ended, cost.keysReceived ? arrived : 0) + seconds;
  }
  return std::max(ended, arrived);
}

} // namespace attnc::shard
