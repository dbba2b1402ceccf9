// Blocks of a mask one by one: as maps for people, and as steps for each row of blocks.
#pragma once

#include "attnc/explain.h"
#include "ir/bindings.h"
#include "ir/ir.h"

#include <cstdint>
#include <vector>

namespace attnc {

/// Most operations of mask_mod and of intervals that maps or rows may take, over all heads: about a second on one core.
constexpr int64_t kMapBudget = int64_t(1) << 27;

/// As the public function, in a bounded number of operations. `module` is verified.
std::vector<BlockMap> mapBlocks(const ir::Module& module, const ir::Bindings& bindings, const BlockMaskShape& shape,
                                int64_t budget = kMapBudget);

/// The live blocks of a row of blocks.
struct BlockRow {
  int64_t live = 0, full = 0;
  int64_t first = INT64_MAX, last = -1;         ///< the first and the last live one
  int64_t firstFull = INT64_MAX, lastFull = -1; ///< the first and the last full one
};
struct BlockRows {
  std::vector<BlockRow> rows; ///< [batch, heads, qBlocks], or of columns of blocks [batch, heads, kvBlocks]
  bool isEstimate = false;    ///< whether some blocks are unknown, and count as live
};
/// Finds the live blocks of each row of blocks; or `byColumns`, of each column. Precondition: all rows fit into memory.
BlockRows rowsOfBlocks(const ir::Module& module, const ir::Bindings& bindings, const BlockMaskShape& shape,
                       bool byColumns = false, int64_t budget = kMapBudget);

} // namespace attnc
