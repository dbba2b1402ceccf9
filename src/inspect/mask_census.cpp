// For each batch entry and head, intervals judge regions of blocks. Undecided regions are cut in four, the largest
// first. Blocks that stay undecided are evaluated element by element, in random order, so that those within the budget
// are a fair sample of the rest.
#include "inspect/mask_census.h"

#include "api/mask_regions.h"
#include "api/tile_elements.h"
#include "support/parallel.h"

#include <algorithm>
#include <random>
#include <vector>

namespace attnc {
namespace {

using analysis::Verdict;

constexpr uint64_t kSeed = 0x5eed; // any number will do, if it is the same everywhere

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
  Sums sums; // over the decided regions
  HeadRegions::Rest rest;
};

/// The mask, and the heads that are examined.
struct Problem {
  MaskRegions mask;
  std::vector<int64_t> heads = {}; // b * shape.heads + h

  /// Returns the sums of a region whose blocks are all of one kind.
  Sums sumsOf(const Region& region, Verdict verdict) const {
    if (verdict == Verdict::AlwaysFalse) return {};
    const BlockMaskShape& shape = mask.shape;
    const analysis::ScoreRect tile = mask.tileOf(region, 0);
    const int64_t rows = tile.qEnd - tile.qBegin, columns = tile.kvEnd - tile.kvBegin;
    Sums sums{.live = mask.blocksOf(region), .pairs = double(rows) * double(columns)};
    if (verdict == Verdict::AlwaysTrue) sums.full = double(rows / shape.qBlock) * double(columns / shape.kvBlock);
    return sums;
  }

  HeadCount count(int64_t head, int64_t quota) const {
    HeadCount count;
    count.rest = HeadRegions(mask, head).judge(quota, [&](const Region& region, Verdict verdict) {
      count.sums.add(sumsOf(region, verdict));
    });
    return count;
  }
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
    for (const Region& block : counts[head].rest.open) open.order.push_back({block, int32_t(head)});
    for (const Region& region : counts[head].rest.unjudged) regions.push_back({region, int32_t(head)});
  }
  open.all = double(open.order.size());
  std::mt19937_64 random(kSeed);
  if (regions.empty()) {
    for (size_t i = open.order.size(); i > 1; --i) std::swap(open.order[i - 1], open.order[random() % i]);
    return open;
  }
  for (const OpenBlock& region : regions) ends.push_back(open.all += problem.mask.blocksOf(region.block));
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
    int64_t q = (int64_t(region.q) << region.qLevel) + int64_t(random() % uint64_t(problem.mask.qBlocksOf(region)));
    int64_t kv = (int64_t(region.kv) << region.kvLevel) + int64_t(random() % uint64_t(problem.mask.kvBlocksOf(region)));
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
  const std::optional<ir::Value> mask = problem.mask.module.output(ir::kMask);
  const int64_t cost = mask ? operationsOf(problem.mask.module, *mask) : 1;
  const int64_t blockCost = int64_t(problem.mask.shape.qBlock) * problem.mask.shape.kvBlock * cost;
  const int64_t count = std::clamp<int64_t>(budget / blockCost, 1, kMostParts);
  std::vector<Visits> parts(static_cast<size_t>(count));
  parallelFor(count, [&](int64_t first, int64_t last) {
    const ir::Interpreter interpreter(problem.mask.module, problem.mask.bindings);
    for (int64_t i = first; i < last; ++i) {
      Visits& part = parts[size_t(i)];
      for (size_t at = size_t(i); at < order.size(); at += size_t(count)) {
        if (part.operations >= budget / count && at > 0) break;
        const auto& [block, head] = order[at];
        const analysis::ScoreRect tile = problem.mask.tileOf(block, problem.heads[size_t(head)]);
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

  Problem problem{{module, bindings, shape, budget.reading}};
  const ReadingCost& reading = problem.mask.reading;
  problem.heads = chosenHeads(headsWithin(budget, reading, heads), heads);
  const int64_t looked = int64_t(problem.heads.size());
  std::vector<HeadCount> counts(problem.heads.size());
  parallelFor(looked, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      counts[size_t(i)] = problem.count(problem.heads[size_t(i)], budget.judging / looked);
  });

  const OpenBlocks open = openBlocks(problem, counts);
  const Visits visits = visit(problem, open.order, budget.elements);
  Sums sums;
  if (visits.blocks > 0) sums.add(visits.sums, open.all / double(visits.blocks));
  census.operations = reading.shared + looked * reading.head + visits.operations;
  for (const HeadCount& count : counts) {
    sums.add(count.sums);
    census.operations += count.rest.operations;
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
