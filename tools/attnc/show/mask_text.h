// The map of a mask for a terminal, and the lines that go with it.
#pragma once

#include "attnc/block_mask.h"
#include "attnc/problem.h"
#include "show/mask_map.h"

#include <functional>
#include <string>
#include <vector>

namespace attnc::cli {

/// Returns how many cells of two characters fit into a terminal (stdout's, $COLUMNS, or 80 columns).
CellLimits terminalCells();

/// Draws the groups with axes and, if there are several, a heading each; then the legend.
std::string mapText(const std::vector<LikeHeads>& groups, const BlockMaskShape& shape);

/// Returns lines for the full, partial and empty blocks, with the share of each. `map` is what they explain.
std::string sharesText(const CellMap& map, const BlockCounts& counts);

/// Returns "the same in all batch entries and heads" for a problem with this mask; "" if each head has its own mask.
std::string scopeText(const BlockMaskShape& shape, const ProblemShape& problem);

/// Returns "batch 0, head 0-3, 6"; "" if the shape has one head.
std::string headsText(const Heads& heads, const BlockMaskShape& shape);

/// Returns "3 more look different: --batch and --head choose".
std::string moreText(size_t count);

/// Draws a frame with both axes around cells. `glyphs` gives two characters for each cell, by its index.
std::string framedText(const CellGrid& grid, const std::function<std::string(size_t)>& glyphs);

/// Draws the groups that have maps, each under its heads if these tell something. `glyphs` gives two characters for a
/// cell.
template <class Map, class Glyphs>
std::string groupsText(const std::vector<Alike<Map>>& groups, const BlockMaskShape& shape, Glyphs glyphs) {
  std::string text;
  size_t left = 0;
  for (const auto& [heads, map] : groups) {
    if (map.cells.empty() && &map != &groups.front().map) {
      ++left;
      continue;
    }
    if (std::string heading = headsText(heads, shape); !heading.empty()) text += heading + "\n";
    text += framedText(map, [&](size_t cell) { return std::string(glyphs(map.cells[cell])); });
  }
  return left ? text + moreText(left) + "\n" : text;
}

} // namespace attnc::cli
