#include "show/mask_picture.h"

#include "show/mask_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnc::cli {
namespace {

constexpr Rgb kBlockEnd = 0xb4bcc6;

/// Indexed by Cell. picture_svg.cpp has the dark ones.
const std::vector<Rgb> kColours{kPaper, 0x9cc3ee, 0x7fa9dd, 0x5088cc, 0x1f4e8c, 0xe3eefa, 0x4d8ad2};
Rgb colourOf(Cell cell) { return kColours[size_t(cell)]; }

/// Draws the ends of blocks over elements.
void addBlockEnds(Picture& picture, const Panel& panel, const CellMap& map, const BlockMaskShape& shape) {
  const auto ends = [](int64_t begin, int64_t end, int64_t block) {
    std::vector<int64_t> at;
    for (int64_t position = (begin / block + 1) * block; position < end; position += block)
      at.push_back(position - begin);
    return at;
  };
  for (int64_t kv : ends(map.region.kvBegin, map.region.kvEnd, shape.kvBlock))
    picture.shapes.emplace_back(PictureRect{panel.x + int(kv) * panel.cellWidth, panel.y, 1, panel.height, kBlockEnd});
  for (int64_t q : ends(map.region.qBegin, map.region.qEnd, shape.qBlock))
    picture.shapes.emplace_back(PictureRect{panel.x, panel.y + int(q) * panel.cellHeight, panel.width, 1, kBlockEnd});
}

void addMaskCells(Picture& picture, const Panel& panel, const CellMap& map, const BlockMaskShape& shape) {
  PictureCells cells{panel.x, panel.y, panel.cellWidth, panel.cellHeight, map.columns, {}, kColours};
  for (Cell cell : map.cells) cells.cells.push_back(uint8_t(cell));
  picture.shapes.emplace_back(std::move(cells));
  if (map.ofElements) addBlockEnds(picture, panel, map, shape);
}

std::vector<std::pair<Cell, std::string>> legendOf(const BlockMaskShape& shape, const CellMap& map,
                                                   const BlockCounts& counts) {
  const auto share = [&](int64_t count) {
    return fmt::format("{} of {} blocks ({:.1f} %)", count, counts.all,
                       counts.all ? 100 * double(count) / double(counts.all) : 0);
  };
  const std::string full = "full: every score lives, mask_mod is not asked; " + share(counts.full);
  const std::string partial = "partial: mask_mod is asked score by score; " + share(counts.live - counts.full);
  const std::string empty = "empty: skipped; " + share(counts.all - counts.live);
  if (map.ofElements)
    return {{Cell::Full, full},
            {Cell::Live, partial},
            {Cell::Masked, "a masked score of a partial block"},
            {Cell::Empty, empty}};
  if (map.qStep <= shape.qBlock && map.kvStep <= shape.kvBlock)
    return {{Cell::Full, full}, {Cell::Partial, partial}, {Cell::Empty, empty}};
  return {{Cell::Full, full},
          {Cell::Most, "several blocks, of which at least half are full"},
          {Cell::Some, "several blocks, of which some are full"},
          {Cell::Partial, partial},
          {Cell::Empty, empty}};
}

} // namespace

CellLimits pictureCells() { return {.rows = kPanelSide, .columns = kPanelSide, .elementsPerCell = 1}; }

Picture maskPicture(const BlockMaskShape& shape, const std::vector<LikeHeads>& groups, const BlockCounts& counts,
                    const std::vector<std::string>& headings) {
  Picture picture;
  std::vector<PanelDrawing> panels;
  for (size_t i = 0; i < std::min(groups.size(), kMostPanels); ++i) {
    const CellMap& map = groups[i].map;
    panels.push_back({map, headsText(groups[i].heads, shape),
                      [&](Picture& onto, const Panel& panel) { addMaskCells(onto, panel, map, shape); }});
  }
  int y = addPanels(picture, addLines(picture, 0, headings) + kGap / 2, panels);
  if (groups.size() > kMostPanels) y = addLines(picture, y, {moreText(groups.size() - kMostPanels)});
  for (const auto& [cell, words] : legendOf(shape, groups.front().map, counts))
    addLegendLine(picture, kPanelLeft, y += kLine, colourOf(cell), words);
  picture.width += kGap / 2;
  picture.height = y + kGap;
  return picture;
}

} // namespace attnc::cli
