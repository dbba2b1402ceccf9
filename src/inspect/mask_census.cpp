// For each batch entry and head, intervals judge regions of blocks. Undecided regions are cut in four, the largest
// first. Blocks that stay undecided are evaluated element by element, in random order, so that those within the budget
// are a fair sample of the rest.
#include "inspect/mask_census.h"

#include "api/tile_elements.h"
#include "inspect/told_ranges.h"
#include "support/parallel.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <random>
#include <vector>

namespace attnc {
namespace {

using analysis::Range;
using analysis::Verdict;

constexpr uint64_t kSeed = 0x5eed; // any number will do, if it is the same everywhere

/// Blocks [q << qLevel, (q + 1) << qLevel) x [kv << kvLevel, ...), cut off at the end of the mask.
struct Region {
  int32_t q = 0, kv = 0;
  int8_t qLevel = 0, kvLevel = 0;
};

/// Sums over blocks.
struct Sums {
  double live = 0, full = 0, pairs = 0;

  void add(const Sums& other, double weight = 1) {
    live += weight * other.live;
    full += weight * other.full;
    pairs += weight * other.pairs;
  }
};

/// What intervals tell about one batch entry and head.
struct HeadCount {
  Sums sums;                   // over the decided regions
  std::vector<Region> open;    // undecided single blocks
  std::deque<Region> unjudged; // regions that the budget did not reach
  int64_t operations = 0;
};

int levelsOver(int64_t blocks) { return int(std::bit_width(uint64_t(std::max<int64_t>(blocks, 1) - 1))); }

/// What all heads share.
struct Problem {
  const ir::Module& module;
  const ir::Bindings& bindings;
  const BlockMaskShape& shape;
  std::vector<ToldValue> told;
  std::vector<RangePyramid> shared; // of values that do not depend on the head; the others are empty
  std::vector<int64_t> heads;       // those that are examined: b * shape.heads + h

  analysis::ScoreRect tileOf(const Region& region, int64_t head) const {
    analysis::ScoreRect tile{.b = head / shape.heads, .h = head % shape.heads};
    tile.qBegin = (int64_t(region.q) << region.qLevel) * shape.qBlock;
    tile.kvBegin = (int64_t(region.kv) << region.kvLevel) * shape.kvBlock;
    tile.qEnd = std::min(tile.qBegin + (int64_t(shape.qBlock) << region.qLevel), shape.qLen);
    tile.kvEnd = std::min(tile.kvBegin + (int64_t(shape.kvBlock) << region.kvLevel), shape.kvLen);
    return tile;
  }

  int64_t qBlocksOf(const Region& region) const {
    return std::min(int64_t(1) << region.qLevel, shape.qBlocks() - (int64_t(region.q) << region.qLevel));
  }
  int64_t kvBlocksOf(const Region& region) const {
    return std::min(int64_t(1) << region.kvLevel, shape.kvBlocks() - (int64_t(region.kv) << region.kvLevel));
  }
  double blocksOf(const Region& region) const { return double(qBlocksOf(region)) * double(kvBlocksOf(region)); }

  /// Returns the sums of a region whose blocks are all of one kind.
  Sums sumsOf(const Region& region, Verdict verdict) const {
    if (verdict == Verdict::AlwaysFalse) return {};
    const analysis::ScoreRect tile = tileOf(region, 0);
    const int64_t rows = tile.qEnd - tile.qBegin, columns = tile.kvEnd - tile.kvBegin;
    Sums sums{.live = blocksOf(region), .pairs = double(rows) * double(columns)};
    if (verdict == Verdict::AlwaysTrue) sums.full = double(rows / shape.qBlock) * double(columns / shape.kvBlock);
    return sums;
  }
};

/// Judges the regions of one batch entry and head by intervals.
class HeadCounter {
public:
  HeadCounter(const Problem& problem, int64_t head)
      : problem(problem), shape(problem.shape), head(head),
        intervals(problem.module, problem.bindings, values(problem.told)), ranges(problem.told.size()) {
    const int64_t b = head / shape.heads, h = head % shape.heads;
    own.resize(problem.told.size());
    for (size_t i = 0; i < own.size(); ++i)
      if (problem.told[i].knowsHead)
        own[i] = RangePyramid(problem.module, problem.bindings, problem.told[i], shape, b, h);
  }

  /// Counts within `quota` operations.
  HeadCount count(int64_t quota) {
    HeadCount result;
    std::deque<Region>& regions = result.unjudged;
    const int64_t cost = std::max<int64_t>(intervals.cost(), 4);
    regions.push_back({0, 0, int8_t(levelsOver(shape.qBlocks())), int8_t(levelsOver(shape.kvBlocks()))});
    for (; !regions.empty() && result.operations < quota; result.operations += cost) {
      const Region region = regions.front();
      regions.pop_front();
      Verdict verdict = judge(region);
      if (verdict != Verdict::Undecided)
        result.sums.add(problem.sumsOf(region, verdict));
      else if (region.qLevel == 0 && region.kvLevel == 0)
        result.open.push_back(region);
      else
        split(region, regions);
    }
    return result;
  }

private:
  static std::vector<ir::Value> values(const std::vector<ToldValue>& told) {
    std::vector<ir::Value> list;
    for (const ToldValue& value : told) list.push_back(value.value);
    return list;
  }

  Verdict judge(const Region& region) {
    for (size_t i = 0; i < ranges.size(); ++i) {
      const ToldValue& told = problem.told[i];
      const RangePyramid& pyramid = told.knowsHead ? own[i] : problem.shared[i];
      bool isRow = told.level == ir::Level::Row;
      ranges[i] = pyramid.of(isRow ? region.q : region.kv, isRow ? region.qLevel : region.kvLevel);
    }
    return intervals.judge(problem.tileOf(region, head), ranges);
  }

  /// Halves the longer side, or both if they are equal.
  void split(const Region& region, std::deque<Region>& parts) const {
    const int qHalves = region.qLevel >= region.kvLevel ? 2 : 1, kvHalves = region.kvLevel >= region.qLevel ? 2 : 1;
    for (int q = 0; q < qHalves; ++q)
      for (int kv = 0; kv < kvHalves; ++kv) {
        Region part{int32_t(region.q * qHalves + q), int32_t(region.kv * kvHalves + kv),
                    int8_t(region.qLevel - (qHalves - 1)), int8_t(region.kvLevel - (kvHalves - 1))};
        if (problem.qBlocksOf(part) > 0 && problem.kvBlocksOf(part) > 0) parts.push_back(part);
      }
  }

  const Problem& problem;
  const BlockMaskShape& shape;
  const int64_t head;
  analysis::TileJudge intervals;
  std::vector<RangePyramid> own; // of values that depend on the head; the others are empty
  std::vector<Range> ranges;     // of the values in the region that is judged
};

struct OpenBlock {
  Region block;
  int32_t head = 0; // index into Problem::heads
};

/// Blocks that intervals leave undecided, in all heads.
struct OpenBlocks {
  std::vector<OpenBlock> order; // the blocks to visit, in this order
  double all = 0;               // number of undecided blocks
  bool isSample = false;        // whether `order` is drawn from them; else it has all of them
};

OpenBlocks openBlocks(const Problem& problem, const std::vector<HeadCount>& counts) {
  constexpr int kMostSamples = 1 << 16;
  OpenBlocks open;
  std::vector<OpenBlock> regions;
  std::vector<double> ends; // of the regions, counted in blocks
  for (size_t head = 0; head < counts.size(); ++head) {
    for (const Region& block : counts[head].open) open.order.push_back({block, int32_t(head)});
    for (const Region& region : counts[head].unjudged) regions.push_back({region, int32_t(head)});
  }
  open.all = double(open.order.size());
  std::mt19937_64 random(kSeed);
  if (regions.empty()) {
    for (size_t i = open.order.size(); i > 1; --i) std::swap(open.order[i - 1], open.order[random() % i]);
    return open;
  }
  for (const OpenBlock& region : regions) ends.push_back(open.all += problem.blocksOf(region.block));
  open.isSample = true;
  std::vector<OpenBlock> drawn;
  for (int i = 0; i < kMostSamples; ++i) {
    const double at = double(random() >> 11) * 0x1p-53 * open.all;
    if (at < double(open.order.size())) {
      drawn.push_back(open.order[size_t(at)]);
      continue;
    }
    const auto [region, head] =
        regions[size_t(std::upper_bound(ends.begin(), std::prev(ends.end()), at) - ends.begin())];
    int64_t q = (int64_t(region.q) << region.qLevel) + int64_t(random() % uint64_t(problem.qBlocksOf(region)));
    int64_t kv = (int64_t(region.kv) << region.kvLevel) + int64_t(random() % uint64_t(problem.kvBlocksOf(region)));
    drawn.push_back({{int32_t(q), int32_t(kv), 0, 0}, head});
  }
  open.order = std::move(drawn);
  return open;
}

struct Visits {
  Sums sums;
  int64_t blocks = 0, operations = 0;
  bool isWhole = true; // whether the budget covers all elements of a block
};

/// Evaluates blocks element by element, in order, within the budget; the first block whatever it costs. The list is cut
/// into parts with a share of the budget each, so that the result does not depend on the number of threads.
Visits visit(const Problem& problem, const std::vector<OpenBlock>& order, int64_t budget) {
  constexpr int64_t kMostParts = 32;
  const std::optional<ir::Value> mask = problem.module.output(ir::kMask);
  const int64_t cost = mask ? operationsOf(problem.module, *mask) : 1;
  const int64_t blockCost = int64_t(problem.shape.qBlock) * problem.shape.kvBlock * cost;
  const int64_t count = std::clamp<int64_t>(budget / blockCost, 1, kMostParts);
  std::vector<Visits> parts(static_cast<size_t>(count));
  parallelFor(count, [&](int64_t first, int64_t last) {
    const ir::Interpreter interpreter(problem.module, problem.bindings);
    for (int64_t i = first; i < last; ++i) {
      Visits& part = parts[size_t(i)];
      for (size_t at = size_t(i); at < order.size(); at += size_t(count)) {
        if (part.operations >= budget / count && at > 0) break;
        const auto& [block, head] = order[at];
        const analysis::ScoreRect tile = problem.tileOf(block, problem.heads[size_t(head)]);
        const ElementsSeen seen = judgeElements(interpreter, tile, budget / cost);
        part.sums.add(problem.sumsOf(block, seen.verdict));
        part.operations += seen.evaluations * cost;
        ++part.blocks;
      }
    }
  });
  Visits all{.isWhole = blockCost <= budget};
  for (const Visits& part : parts) {
    all.sums.add(part.sums);
    all.blocks += part.blocks;
    all.operations += part.operations;
  }
  return all;
}

/// Returns how many batch entries and heads the budget allows: each reads its own part of the captures.
int64_t headsWithin(const CensusBudget& budget, const ReadingCost& reading, int64_t heads) {
  int64_t most = std::min(heads, budget.heads);
  if (reading.head > 0) most = std::min(most, (budget.reading - reading.shared) / reading.head);
  return most;
}

/// Returns all heads, or a random choice: neighbours and heads at equal distances may be alike.
std::vector<int64_t> chosenHeads(int64_t count, int64_t heads) {
  std::mt19937_64 random(kSeed);
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < count; ++i) chosen.push_back(count == heads ? i : int64_t(random() % uint64_t(heads)));
  return chosen;
}

} // namespace

MaskCensus takeCensus(const ir::Module& module, const ir::Bindings& bindings, const BlockMaskShape& shape,
                      const CensusBudget& budget) {
  MaskCensus census{.shape = shape};
  const int64_t heads = shape.batch * shape.heads;
  const double blocksPerHead = double(shape.qBlocks()) * double(shape.kvBlocks());
  census.blocks = double(heads) * blocksPerHead;
  if (census.blocks == 0) return census;

  Problem problem{module, bindings, shape, toldValues(module), {}, {}};
  ReadingCost reading = readingCost(problem.told, shape);
  if (reading.head + reading.shared > budget.reading) {
    problem.told.clear(); // too much to read even once: gathers stay unknown
    reading = {};
  }
  for (const ToldValue& told : problem.told)
    problem.shared.push_back(told.knowsHead ? RangePyramid() : RangePyramid(module, bindings, told, shape, 0, 0));
  problem.heads = chosenHeads(headsWithin(budget, reading, heads), heads);
  const int64_t looked = int64_t(problem.heads.size());
  std::vector<HeadCount> counts(problem.heads.size());
  parallelFor(looked, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      counts[size_t(i)] = HeadCounter(problem, problem.heads[size_t(i)]).count(budget.judging / looked);
  });

  const OpenBlocks open = openBlocks(problem, counts);
  const Visits visits = visit(problem, open.order, budget.elements);
  Sums sums;
  if (visits.blocks > 0) sums.add(visits.sums, open.all / double(visits.blocks));
  census.operations = reading.shared + looked * reading.head + visits.operations;
  for (const HeadCount& count : counts) {
    sums.add(count.sums);
    census.operations += count.operations;
  }
  const double weight = double(heads) / double(looked);
  census.live = weight * sums.live;
  census.full = weight * sums.full;
  census.pairs = weight * sums.pairs;
  bool guessed = open.isSample || visits.blocks < int64_t(open.order.size()) || (visits.blocks > 0 && !visits.isWhole);
  census.estimated = guessed ? open.all : 0;
  census.sampled = guessed ? double(visits.blocks) : 0;
  if (looked == heads) return census;
  census.sampled += double(looked) * blocksPerHead - census.estimated;
  census.estimated = census.blocks;
  return census;
}

} // namespace attnc
