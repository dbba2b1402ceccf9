// The cells that `attnc mask` draws: the blocks of a mask, or its elements if they are few.
#pragma once

#include "attnc/block_runs.h"
#include "attnc/explain.h"

#include <cstdint>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace attnc::cli {

/// The state of a cell.
enum class Cell : uint8_t {
  Empty,   ///< an empty block, or only empty blocks
  Partial, ///< a partial block; or blocks or elements of which some live, and none is a full block
  Some,    ///< several blocks: some are full, less than half
  Most,    ///< several blocks: at least half are full, and not all
  Full,    ///< a full block, or only full blocks
  Masked,  ///< elements of a partial block, all masked
  Live,    ///< elements of a partial block, all live
};

/// Rows and columns of the scores, half open.
struct MaskRegion {
  int64_t qBegin = 0, qEnd = 0, kvBegin = 0, kvEnd = 0;
};

/// A region of the scores, cut into cells.
struct CellGrid {
  MaskRegion region; ///< what the cells cover; for blocks, up to the ends of blocks and of the mask
  int64_t rows = 0, columns = 0;
  int64_t qStep = 1, kvStep = 1; ///< rows and columns of scores per cell
};

/// A part of a mask as cells.
struct CellMap : CellGrid {
  bool ofElements = false; ///< whether cells are scores, or some scores of one block
  std::vector<Cell> cells; ///< row by row
};

/// Batch entries and heads, as pairs.
using Heads = std::vector<std::pair<int64_t, int64_t>>;

/// Counts of blocks.
struct BlockCounts {
  int64_t all = 0, live = 0, full = 0;
};

/// Limits on the number of cells.
struct CellLimits {
  int64_t rows, columns;   ///< if exceeded, blocks share cells
  int64_t elementsPerCell; ///< along each axis: how many elements may share a cell before blocks are drawn
};

/// Heads whose maps look the same.
template <class Map> struct Alike {
  Heads heads;
  Map map; ///< empty beyond the limit of alike()
};
using LikeHeads = Alike<CellMap>;

/// Groups all given heads whose maps look the same, in their order. mapOf(b, h) makes a map. The first `mostMaps`
/// groups have theirs.
template <class MapOf> auto alike(const Heads& heads, size_t mostMaps, MapOf mapOf) {
  using Map = decltype(mapOf(0, 0));
  std::vector<Alike<Map>> groups;
  std::unordered_map<size_t, size_t> known; // hash of a map -> its group
  for (const auto& [b, h] : heads) {
    Map map = mapOf(b, h);
    const std::string_view bytes(reinterpret_cast<const char*>(map.cells.data()),
                                 map.cells.size() * sizeof(map.cells[0]));
    const auto [found, isNew] = known.try_emplace(std::hash<std::string_view>()(bytes), groups.size());
    if (isNew) groups.emplace_back();
    groups[found->second].heads.emplace_back(b, h);
    if (isNew && groups.size() <= mostMaps) groups.back().map = std::move(map);
  }
  return groups;
}

/// Counts the blocks of these heads that have a part in the region.
BlockCounts countBlocks(const BlockRuns& mask, const Heads& heads, const MaskRegion& region);

/// Returns the map of one head. `reader` is for the mod and the captures that the mask was built from.
CellMap mapOf(const BlockRuns& mask, const MaskReader& reader, int64_t b, int64_t h, const MaskRegion& region,
              const CellLimits& limits);

} // namespace attnc::cli
