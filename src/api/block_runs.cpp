// Finds the runs of blocks of a mask: intervals judge regions, and captured data is read once by rows and columns.
#include "attnc/block_runs.h"

#include "api/mask_regions.h"
#include "api/tile_elements.h"
#include "ir/bind.h"
#include "launch/mask_shape.h"
#include "support/parallel.h"
#include "support/try.h"

#include <algorithm>

namespace attnc {
namespace {

constexpr int64_t kMostReading = int64_t(1) << 30; // operations; masks that need more take their gathers as unknown
constexpr int64_t kMostStrips = 16;                // of a head, which threads share

/// Consecutive rows of blocks of one head.
struct Strip {
  int64_t head = 0;
  Region region;
  std::vector<std::vector<BlockRun>> rows = {};
  int64_t evaluated = 0;

  int64_t firstRow() const { return int64_t(region.q) << region.qLevel; }
};

/// Adds blocks behind the last run of a row.
void append(std::vector<BlockRun>& row, int32_t begin, int32_t end, bool isFull) {
  if (begin >= end) return;
  if (!row.empty() && row.back().end == begin && row.back().isFull == isFull)
    row.back().end = end;
  else
    row.push_back({begin, end, isFull});
}

void fill(Strip& strip, const MaskRegions& mask, HeadRegions& regions, const ir::Interpreter& interpreter) {
  const BlockMaskShape& shape = mask.shape;
  // A block that crosses the end of a length counts as partial.
  const int64_t wholeRows = shape.qLen / shape.qBlock;
  const auto wholeColumns = int32_t(shape.kvLen / shape.kvBlock);
  strip.rows.resize(size_t(std::max<int64_t>(0, mask.qBlocksOf(strip.region))));
  regions.walk(strip.region, [&](const Region& region, analysis::Verdict verdict) {
    if (verdict == analysis::Verdict::Undecided) { // a block
      verdict = judgeElements(interpreter, mask.tileOf(region, strip.head)).verdict;
      ++strip.evaluated;
    }
    if (verdict == analysis::Verdict::AlwaysFalse) return;
    const int64_t first = int64_t(region.q) << region.qLevel;
    const auto begin = int32_t(int64_t(region.kv) << region.kvLevel), end = int32_t(begin + mask.kvBlocksOf(region));
    for (int64_t row = first; row < first + mask.qBlocksOf(region); ++row) {
      const bool isFull = verdict == analysis::Verdict::AlwaysTrue && row < wholeRows;
      const int32_t fullEnd = isFull ? std::clamp(wholeColumns, begin, end) : begin;
      std::vector<BlockRun>& runs = strip.rows[size_t(row - strip.firstRow())];
      append(runs, begin, fullEnd, true);
      append(runs, fullEnd, end, false);
    }
  });
}

/// Returns the strips of all heads, in the order of their rows.
std::vector<Strip> stripsOf(const MaskRegions& mask) {
  const BlockMaskShape& shape = mask.shape;
  const int64_t heads = shape.batch * shape.heads;
  const bool readsHeads = std::any_of(mask.told.begin(), mask.told.end(), [](auto& told) { return told.knowsHead; });
  Region strip = mask.whole();
  // What depends on the head is read once for each head: one strip.
  for (int64_t count = 1; !readsHeads && heads * count < kMostStrips && strip.qLevel > 0; count *= 2) --strip.qLevel;
  std::vector<Strip> strips;
  for (int64_t head = 0; head < heads; ++head)
    for (strip.q = 0; int64_t(strip.q) << strip.qLevel < shape.qBlocks(); ++strip.q) strips.push_back({head, strip});
  return strips;
}

} // namespace

Expected<BlockRuns> BlockRuns::build(const Mod& mod, const Captures& captures, const ProblemShape& problem,
                                     const BlockMaskShape& shape) {
  const ir::Module& module = mod.module();
  if (shape.boxes) return Error::environment("block mask: blocks that are boxes have no runs");
  ATTNC_TRY(plan::checkMaskProblem(module, problem, shape));
  ATTNC_TRY_AS(bindings, ir::bindOnHost(module, captures, problem));

  BlockRuns result;
  result.extents = shape;
  result.ends.resize(size_t(shape.batch * shape.heads * shape.qBlocks()) + 1, 0);
  if (result.ends.size() == 1 || shape.kvBlocks() == 0) return result;

  const MaskRegions mask(module, *bindings, shape, kMostReading);
  std::vector<Strip> strips = stripsOf(mask);
  parallelFor(int64_t(strips.size()), [&](int64_t begin, int64_t end) {
    const ir::Interpreter interpreter(module, *bindings);
    std::optional<HeadRegions> regions;
    for (int64_t i = begin; i < end; ++i) {
      if (i == begin || strips[size_t(i)].head != strips[size_t(i - 1)].head)
        regions.emplace(mask, strips[size_t(i)].head);
      fill(strips[size_t(i)], mask, *regions, interpreter);
    }
  });

  size_t row = 0;
  for (Strip& strip : strips) {
    result.evaluated += strip.evaluated;
    for (const std::vector<BlockRun>& runs : strip.rows) {
      result.runs.insert(result.runs.end(), runs.begin(), runs.end());
      result.ends[++row] = result.runs.size();
      for (const BlockRun& run : runs) {
        result.live += run.end - run.begin;
        result.full += run.isFull ? run.end - run.begin : 0;
      }
    }
    strip.rows = {};
  }
  return result;
}

} // namespace attnc
