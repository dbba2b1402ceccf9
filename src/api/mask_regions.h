// The blocks of a mask, region by region: intervals judge whole regions, and those that they leave open are cut up.
// Captured data is read by rows and columns, so that gathers have known ranges.
#pragma once

#include "analysis/tile_verdict.h"
#include "api/told_ranges.h"
#include "attnc/block_mask.h"
#include "ir/bindings.h"
#include "ir/ir.h"

#include <llvm/ADT/STLFunctionalExtras.h>

#include <cstdint>
#include <deque>
#include <vector>

namespace attnc {

/// Blocks [q << qLevel, (q + 1) << qLevel) x [kv << kvLevel, ...), cut off at the end of the mask.
struct Region {
  int32_t q = 0, kv = 0;
  int8_t qLevel = 0, kvLevel = 0;

  bool isBlock() const { return qLevel == 0 && kvLevel == 0; }
};

/// What all heads of a mask share.
class MaskRegions {
public:
  /// `module` is verified, and outlives the object like the bindings, whose captures lie in host memory. Reads what
  /// all heads share, unless reading takes more than `mostReading` operations. Then gathers stay unknown.
  MaskRegions(const ir::Module& module, const ir::Bindings& bindings, const BlockMaskShape& shape, int64_t mostReading);

  const ir::Module& module;
  const ir::Bindings& bindings;
  const BlockMaskShape& shape;
  std::vector<ToldValue> told;
  ReadingCost reading;

  /// Returns the scores of a region. `head`: b * shape.heads + h.
  analysis::ScoreRect tileOf(const Region& region, int64_t head) const;
  int64_t qBlocksOf(const Region& region) const;
  int64_t kvBlocksOf(const Region& region) const;
  /// Returns the region of all blocks.
  Region whole() const;
  double blocksOf(const Region& region) const { return double(qBlocksOf(region)) * double(kvBlocksOf(region)); }

private:
  friend class HeadRegions;
  /// Returns the scores of a region in head 0.
  analysis::ScoreRect placeOf(const Region& region) const;

  const int64_t qBlocks, kvBlocks;  // of the shape, which divides for them
  std::vector<RangePyramid> shared; // of values that do not depend on the head; the others are empty
};

/// Judges the regions of one batch entry and head by intervals, the largest first. Not thread-safe.
class HeadRegions {
public:
  /// Reads what depends on the head.
  HeadRegions(const MaskRegions& mask, int64_t head);

  /// What intervals left undecided.
  struct Rest {
    std::vector<Region> open;    ///< single blocks
    std::deque<Region> unjudged; ///< regions that the quota did not reach
    int64_t operations = 0;      ///< operations taken
  };
  /// Judges within `quota` operations. Calls `decided` for each region that is wholly live or wholly dead, and for each
  /// block that is mixed.
  Rest judge(int64_t quota, llvm::function_ref<void(const Region&, analysis::Verdict)> decided);

  /// Judges a region to the end. Calls `found` for disjoint regions that cover it: decided ones, and undecided blocks.
  /// The blocks of each row come in increasing order.
  void walk(const Region& region, llvm::function_ref<void(const Region&, analysis::Verdict)> found);

private:
  analysis::Verdict verdictOf(const Region& region);
  /// Whether a verdict holds for each block of a region.
  static bool holdsWithin(const Region& region, analysis::Verdict verdict) {
    return region.isBlock() ? verdict != analysis::Verdict::Undecided : verdict < analysis::Verdict::Mixed;
  }
  template <class Visit> void split(const Region& region, Visit visit) const;

  const MaskRegions& mask;
  const int64_t b, h;
  analysis::TileJudge intervals;
  std::vector<RangePyramid> own;              // of values that depend on the head; the others are empty
  std::vector<const analysis::Range*> ranges; // of the values in the region that is judged
};

} // namespace attnc
