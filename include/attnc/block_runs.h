// Runs of blocks: what a mask leaves to compute, in memory that grows with its edges and not with its blocks.
#pragma once

#include "attnc/block_mask.h"
#include "attnc/captures.h"
#include "attnc/error.h"
#include "attnc/mod.h"
#include "attnc/problem.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace attnc {

/// Neighbouring live blocks [begin, end) of one row of blocks, all full or all partial.
struct BlockRun {
  int32_t begin = 0, end = 0; ///< First block of KV columns, and the block behind the last.
  bool isFull = false;        ///< Whether the blocks are full; otherwise they are partial.
  friend bool operator==(const BlockRun&, const BlockRun&) = default;
};

/// The live blocks of a mask as runs. A causal mask over a million tokens has two runs a row of blocks: 0.2 MB, where
/// lists take 0.5 GB. Any thread may read it.
class BlockRuns {
public:
  /// Runs of a row, in increasing order. They do not overlap.
  struct Row {
    const BlockRun* first = nullptr; ///< First run; owned by the BlockRuns.
    const BlockRun* last = nullptr;  ///< Behind the last run.
    /// Returns the first run, for range-based loops.
    const BlockRun* begin() const { return first; }
    /// Returns the place behind the last run.
    const BlockRun* end() const { return last; }
  };

  /// Finds the blocks that BlockMask::build() lists, on the CPU. Intervals decide whole regions at once. Only blocks
  /// that they leave open are evaluated element by element (evaluatedBlocks()). Captures are in host memory. Uses all
  /// cores, and returns when it is done. Errors: those of BlockMask::build(); blocks that are boxes.
  static Expected<BlockRuns> build(const Mod& mod, const Captures& captures, const ProblemShape& problem,
                                   const BlockMaskShape& shape);

  /// Returns the size of the mask and of its blocks.
  const BlockMaskShape& shape() const { return extents; }
  /// Returns the runs of a row of blocks, valid while this object lives unchanged. Precondition: indices within
  /// shape().
  Row row(int64_t batch, int64_t head, int64_t qBlock) const {
    const size_t at = size_t((batch * extents.heads + head) * extents.qBlocks() + qBlock);
    return {runs.data() + ends[at], runs.data() + ends[at + 1]};
  }
  /// Returns the number of partial and full blocks, over all batches and heads of the shape.
  int64_t liveBlocks() const { return live; }
  /// Returns the number of full blocks, over all batches and heads of the shape.
  int64_t fullBlocks() const { return full; }
  /// Returns the number of blocks that intervals left open: mask_mod was evaluated until they were known to be partial,
  /// or to the end. Zero if intervals decide the mask.
  int64_t evaluatedBlocks() const { return evaluated; }

private:
  BlockMaskShape extents;
  std::vector<size_t> ends = {0}; // of rows in `runs`: row i is [ends[i], ends[i + 1])
  std::vector<BlockRun> runs;
  int64_t live = 0, full = 0, evaluated = 0;
};

} // namespace attnc
