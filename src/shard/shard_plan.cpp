// Makes plans: candidates for the layout and the number of stages, of which the one with the best prediction stays.
#include "attnc/shard.h"

#include "api/mod_impl.h"
#include "shard/layouts.h"
#include "shard/live_rows.h"
#include "shard/pieces.h"
#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace attnc {
namespace {

using shard::Deal;
using shard::LiveMask;
using shard::Need;
using shard::StageCost;

constexpr int kMostWorld = 1 << 16, kMostStages = 32;
/// What a kernel by boxes of a grid gains over one by lists of blocks, at least. Ranks with whole slices have it.
constexpr double kGainOfBoxes = 1.25;

Status checkOptions(const std::vector<ShardMask>& masks, const ProblemShape& problem, int world,
                    const ShardOptions& options) {
  const auto wrong = [](std::string what) { return Error::environment("shards: " + std::move(what)); };
  if (masks.empty()) return wrong("there is no mask");
  for (const ShardMask& mask : masks)
    if (!mask.mod || !(mask.layers > 0)) return wrong("a mask has no mod, or no layers");
  if (world < 1 || world > kMostWorld) return wrong(fmt::format("a world of {} is outside 1 .. {}", world, kMostWorld));
  if (options.stages < 0 || options.stages > kMostStages)
    return wrong(fmt::format("{} stages are outside 0 .. {}", options.stages, kMostStages));
  if (options.headDim < 1 || options.headDimV < 1 || options.elementBytes < 1)
    return wrong("head dims and bytes of an element are at least 1");
  if (!(options.flops > 0) || !(options.bandwidth > 0) || !(options.memory > 0) || !(options.latency >= 0))
    return wrong("FLOP/s and bytes/s are positive, and a latency is not negative");
  if (options.headGroups < 1 || world % options.headGroups || problem.qHeads % options.headGroups ||
      problem.kvHeads % options.headGroups)
    return wrong(fmt::format("{} groups of heads do not divide a world of {}, H = {} and HKV = {}", options.headGroups,
                             world, problem.qHeads, problem.kvHeads));
  if (problem.batch < 0 || problem.qHeads < 0 || problem.kvHeads < 0 || problem.qLen < 0 || problem.kvLen < 0)
    return wrong("an extent is negative");
  return {};
}

int64_t tokensOf(const std::vector<ShardInterval>& intervals) {
  int64_t count = 0;
  for (const ShardInterval& interval : intervals) count += interval.end - interval.begin;
  return count;
}

/// Returns the predicted seconds in which a rank of a team exchanges heads for rows, and rows for heads.
double secondsOfHeads(int64_t rows, int64_t keys, const ProblemShape& problem, const ShardOptions& options) {
  if (options.headGroups == 1) return 0;
  const double bytes = shard::bytesOfHeads(rows, keys, problem, options) / options.headGroups;
  return 2 * options.latency + bytes / options.bandwidth;
}

/// The plan of one mask, with the times of its ranks; with groups of heads, ranks are teams here, and do the work of
/// all heads. Needs of all ranks come with it, for another number of stages.
ShardMaskPlan planMask(const LiveMask& live, const Deal& rows, const Deal& keys, std::vector<std::vector<Need>>& needs,
                       int stages, const ProblemShape& problem, const ShardOptions& options) {
  const int world = int(rows.size());
  ShardMaskPlan plan;
  plan.layers = live.layers;
  plan.evaluatedBlocks = live.evaluatedBlocks;
  std::vector<std::vector<StageCost>> costs;
  for (int rank = 0; rank < world; ++rank) {
    shard::setStages(needs[size_t(rank)], rank, world, stages);
    costs.push_back(shard::stageCosts(live, rows[size_t(rank)], needs[size_t(rank)], stages));
  }
  for (const std::vector<Need>& ofRank : needs)
    for (const Need& need : ofRank)
      if (need.piece.stage > 0)
        costs[size_t(need.piece.from)][size_t(need.piece.stage)].keysSent +=
            need.piece.keys.end - need.piece.keys.begin;
  double most = 0;
  for (const std::vector<StageCost>& ofRank : costs) {
    const size_t rank = plan.ranks.size();
    ShardWork& work = plan.ranks.emplace_back();
    for (const StageCost& cost : ofRank) {
      work.pairs += cost.pairs;
      work.keysReceived += cost.keysReceived;
      work.keysSent += cost.keysSent;
      work.stageRows.push_back(cost.rows);
    }
    work.seconds = shard::secondsOf(ofRank, problem, options) +
                   secondsOfHeads(tokensOf(rows[rank]), tokensOf(keys[rank]), problem, options);
    plan.pairs += work.pairs;
    most = std::max(most, work.pairs);
  }
  if (plan.pairs > 0) plan.imbalance = most * world / plan.pairs;
  return plan;
}

double secondsOf(const ShardMaskPlan& plan) {
  double slowest = 0;
  for (const ShardWork& work : plan.ranks) slowest = std::max(slowest, work.seconds);
  return plan.layers * slowest;
}

/// A layout, and the best numbers of stages for it.
struct Candidate {
  ShardLayout layout = ShardLayout::Contiguous;
  Deal rows, keys;
  int64_t slice = 1; ///< as Way::slice
  std::vector<ShardMaskPlan> masks = {};
  double seconds = 0;

  /// Whether this one is to be preferred.
  bool isBetterThan(const Candidate& other) const {
    const auto costOf = [](const Candidate& of) { return of.seconds / (of.slice > 1 ? kGainOfBoxes : 1); };
    return costOf(*this) < costOf(other);
  }
};

/// Plans all masks on a layout.
void planAll(Candidate& candidate, const std::vector<LiveMask>& masks, const ProblemShape& problem,
             const ShardOptions& options) {
  const std::vector<shard::OwnedKeys> owned = shard::ownedKeys(candidate.keys);
  std::vector<int> tries{1, 2, 4, 8};
  if (options.stages) tries = {options.stages};
  if (candidate.rows.size() == 1) tries = {1};
  for (const LiveMask& mask : masks) {
    std::vector<std::vector<Need>> needs;
    for (const std::vector<ShardInterval>& rows : candidate.rows) {
      needs.push_back(shard::needsOf(mask, rows, owned));
      if (candidate.slice > 1) shard::takeSlices(needs.back(), candidate.slice);
    }
    std::optional<ShardMaskPlan> best;
    int stages = 0;
    for (const int count : tries) {
      ShardMaskPlan one = planMask(mask, candidate.rows, candidate.keys, needs, count, problem, options);
      if (best && secondsOf(one) >= secondsOf(*best)) break; // more stages only help to hide transfers
      best = std::move(one);
      stages = count;
    }
    for (size_t rank = 0; rank < needs.size(); ++rank) {
      shard::setStages(needs[rank], int(rank), int(needs.size()), stages);
      for (const Need& need : needs[rank]) best->ranks[rank].pieces.push_back(need.piece);
      std::stable_sort(best->ranks[rank].pieces.begin(), best->ranks[rank].pieces.end(),
                       [](const ShardPiece& a, const ShardPiece& b) { return a.stage < b.stage; });
    }
    candidate.seconds += secondsOf(*best);
    candidate.masks.push_back(*std::move(best));
  }
}

/// One way to deal rows.
struct Way {
  ShardLayout layout = ShardLayout::Contiguous;
  int perRank = 1;   // chunks, of a greedy layout
  double slack = 0;  // as in shard::greedy()
  int64_t slice = 1; // of the grid of all masks, if ranks have whole ones

  Deal deal(const std::vector<LiveMask>& masks, int64_t tokens, int world) const {
    switch (layout) {
    case ShardLayout::Auto:
    case ShardLayout::Contiguous: break;
    case ShardLayout::ZigZag: return shard::zigZag(tokens, world);
    case ShardLayout::Greedy: return shard::greedy(masks, tokens, world, perRank, slack);
    }
    return shard::contiguous(tokens, world, slice);
  }
};

/// Returns the ways to try for a layout, the simplest first.
std::vector<Way> waysOf(ShardLayout layout, int world, int64_t slice) {
  // Plans of large worlds have millions of pieces, so few ways are tried.
  const bool isLarge = world > 64;
  const std::vector<int> chunks = isLarge ? std::vector<int>{2, 4} : std::vector<int>{2, 4, 8, 16, 32};
  const std::vector<double> slacks = isLarge ? std::vector<double>{0.05} : std::vector<double>{0, 0.02, 0.05, 0.12};
  std::vector<Way> ways;
  const auto wants = [&](ShardLayout one) { return layout == ShardLayout::Auto || layout == one; };
  if (slice > 1 && wants(ShardLayout::Contiguous)) ways.push_back({.slice = slice});
  for (const ShardLayout one : {ShardLayout::Contiguous, ShardLayout::ZigZag})
    if (wants(one)) ways.push_back({one});
  if (wants(ShardLayout::Greedy))
    for (const int perRank : chunks)
      for (const double slack : slacks) ways.push_back({ShardLayout::Greedy, perRank, slack});
  return ways;
}

/// Gives each rank of a team its share of the team's work, and keys from the ranks of its own group of heads.
void divideTeams(ShardMaskPlan& mask, int groups) {
  std::vector<ShardWork> ranks;
  for (const ShardWork& team : mask.ranks)
    for (int group = 0; group < groups; ++group) {
      ShardWork& work = ranks.emplace_back(team);
      work.pairs /= groups;
      for (ShardPiece& piece : work.pieces) piece.from = piece.from * groups + group;
    }
  mask.ranks = std::move(ranks);
}

bool areEqual(const shard::Starts& starts) { return starts.q == starts.kv; }

} // namespace

int64_t ShardTokens::rowCount() const { return tokensOf(rows); }

int64_t ShardTokens::keyCount() const { return tokensOf(keys); }

int64_t ShardTokens::tokenOfRow(int64_t row) const {
  for (const ShardInterval& interval : rows) {
    if (row < interval.end - interval.begin) return interval.begin + row;
    row -= interval.end - interval.begin;
  }
  return -1;
}

ShardTokens ShardPlan::teamOf(int rank) const {
  ShardTokens all;
  const auto add = [](std::vector<ShardInterval>& to, const std::vector<ShardInterval>& from) {
    for (const ShardInterval& next : from)
      if (!to.empty() && to.back().end == next.begin)
        to.back().end = next.end;
      else
        to.push_back(next);
  };
  for (int other = rank / headGroups * headGroups, i = 0; i < headGroups; ++i) {
    add(all.rows, ranks[size_t(other + i)].rows);
    add(all.keys, ranks[size_t(other + i)].keys);
  }
  return all;
}

const char* shardLayoutName(ShardLayout layout) {
  switch (layout) {
  case ShardLayout::Auto: return "auto";
  case ShardLayout::Contiguous: return "contiguous";
  case ShardLayout::ZigZag: return "zigzag";
  case ShardLayout::Greedy: return "greedy";
  }
  return "";
}

Expected<ShardPlan> ShardPlan::make(const std::vector<ShardMask>& masks, const ProblemShape& problem, int world,
                                    const ShardOptions& options) {
  ATTNC_TRY(checkOptions(masks, problem, world, options));
  ATTNC_TRY_AS(starts, shard::startsOf(problem, options));
  std::vector<LiveMask> live;
  int64_t slice = 0; // 0: not known yet; 1: masks differ
  for (const ShardMask& mask : masks) {
    ATTNC_TRY_AS(one, shard::liveMask(mask, problem, options, *starts));
    live.push_back(*std::move(one));
    ATTNC_TRY_AS(ofMask, sliceOf(*mask.mod, mask.captures, problem));
    slice = slice == 0 || slice == *ofMask ? *ofMask : 1;
  }
  // Teams cut slices, and a ragged batch has no grid.
  if (options.headGroups > 1 || !options.lengths.empty()) slice = 1;

  constexpr double kGoodEnough = 0.99; // efficiency, from which further ways are not tried
  const auto efficiencyOf = [&](const Candidate& candidate) {
    double ideal = 0;
    for (const ShardMaskPlan& mask : candidate.masks)
      ideal += mask.layers * shard::secondsOfPairs(mask.pairs / world, options);
    return ideal > 0 && candidate.seconds > 0 ? ideal / candidate.seconds : 1;
  };
  std::optional<Candidate> best;
  const int teams = world / options.headGroups;
  for (const Way& way : waysOf(options.layout, teams, slice)) {
    Candidate candidate{way.layout, way.deal(live, starts->q.back(), teams), {}, way.slice};
    candidate.keys = areEqual(*starts) ? candidate.rows : shard::contiguous(starts->kv.back(), teams);
    planAll(candidate, live, problem, options);
    if (!best || candidate.isBetterThan(*best)) best = std::move(candidate);
    if (efficiencyOf(*best) >= kGoodEnough) break;
  }

  ShardPlan result;
  result.world = world;
  result.headGroups = options.headGroups;
  result.problem = problem;
  result.isRagged = !options.lengths.empty();
  result.layout = best->layout;
  for (int team = 0; team < teams; ++team) {
    Deal rows = shard::partsOf(best->rows[size_t(team)], options.headGroups);
    Deal keys = shard::partsOf(best->keys[size_t(team)], options.headGroups);
    for (size_t i = 0; i < rows.size(); ++i) result.ranks.push_back({std::move(rows[i]), std::move(keys[i])});
  }
  result.efficiency = efficiencyOf(*best);
  result.masks = std::move(best->masks);
  for (ShardMaskPlan& mask : result.masks) {
    for (const ShardWork& team : mask.ranks) {
      result.bytesReceived += mask.layers * double(team.keysReceived) * shard::bytesOfKey(problem, options);
      for (const ShardPiece& piece : team.pieces) result.stages = std::max(result.stages, piece.stage);
    }
    result.bytesReceived += mask.layers * shard::bytesOfHeads(starts->q.back(), starts->kv.back(), problem, options);
    divideTeams(mask, options.headGroups);
  }
  result.qStarts = std::move(starts->q);
  result.kvStarts = std::move(starts->kv);
  return result;
}

} // namespace attnc
