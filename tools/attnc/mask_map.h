// What `attnc mask` shows: the blocks of a mask, or its elements where they are few, as cells to draw.
#pragma once

#include "attnc/block_mask.h"
#include "ir/interpreter.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace attnc::cli {

/// What a cell of a map says.
enum class Cell : uint8_t {
  Empty,   ///< of an empty block, or empty blocks alone
  Partial, ///< a partial block; several blocks of which none is full and some live; elements of which some live
  Mixed,   ///< several blocks of which some are full and some are not
  Full,    ///< of a full block, or full blocks alone
  Masked,  ///< elements of a partial block of which none lives
  Live,    ///< elements of a partial block that all live
};

/// Rows and columns of the scores, half open.
struct MaskRegion {
  int64_t qBegin = 0, qEnd = 0, kvBegin = 0, kvEnd = 0;
};

/// A region as cells, row by row.
struct CellMap {
  MaskRegion region; ///< what the cells cover; of blocks, up to the ends of blocks and of the mask
  int64_t rows = 0, columns = 0;
  int64_t qStep = 1, kvStep = 1; ///< scores that a cell is high and wide
  bool ofElements = false;       ///< cells are scores, or some scores of one block
  std::vector<Cell> cells;
};

/// How many cells there is room for.
struct CellLimits {
  int64_t rows, columns;    ///< more blocks share cells
  int64_t elementsPerCell;  ///< along each axis: that many elements may share a cell before blocks are drawn
};

/// Heads, (batch entry, head) of the mask, that look the same.
struct LikeHeads {
  std::vector<std::pair<int64_t, int64_t>> heads;
  CellMap map; ///< empty beyond the limit of likeHeads()
};

/// The map of one head. `interpreter` is of the mod and the captures that the mask was built from.
CellMap mapOf(const BlockMask& mask, const ir::Interpreter& interpreter, int64_t b, int64_t h, const MaskRegion& region,
              const CellLimits& limits);

/// All given heads, those that look the same together, in their order. The first `mostMaps` have their maps.
std::vector<LikeHeads> likeHeads(const BlockMask& mask, const ir::Interpreter& interpreter,
                                 const std::vector<std::pair<int64_t, int64_t>>& heads, const MaskRegion& region,
                                 const CellLimits& limits, size_t mostMaps);

} // namespace attnc::cli
