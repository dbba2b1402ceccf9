#include "mask_picture.h"

#include "mask_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

namespace attnc::cli {
namespace {

constexpr int kPlot = 512, kSmallPlot = 256;    // longer side of a single panel, and of one among several
constexpr int kThin = 24;                       // minimum of the shorter side
constexpr int kLeft = 56, kTop = 34, kGap = 16; // of a panel: space for q_idx and kv_idx labels, and between panels
constexpr int kLine = 14;                       // height of a line of words
constexpr int kWidest = 1400;
constexpr Rgb kFrame = 0x808080, kGrid = 0xb4bcc6;

/// Indexed by Cell.
const std::vector<Rgb> kColours{0xffffff, 0x9cc3ee, 0x5f8fcb, 0x1f4e8c, 0xe3eefa, 0x4d8ad2};
Rgb colourOf(Cell cell) { return kColours[size_t(cell)]; }

/// The size of a panel's cells, and its position.
struct Panel {
  const CellMap& map;
  int x = 0, y = 0; ///< position of the cells
  int cellWidth = 1, cellHeight = 1;

  Panel(const CellMap& map, int64_t plot) : map(map) {
    const int64_t cell = std::max<int64_t>(1, plot / std::max<int64_t>({map.rows, map.columns, 1}));
    const auto side = [&](int64_t cells) {
      return int(cells * cell >= kThin || cells == 0 ? cell : (kThin + cells - 1) / cells);
    };
    cellWidth = side(map.columns);
    cellHeight = side(map.rows);
  }
  int width() const { return int(map.columns) * cellWidth; }
  int height() const { return int(map.rows) * cellHeight; }
};

void addFrame(Picture& picture, int x, int y, int width, int height, Rgb colour) {
  for (const PictureRect& side : {PictureRect{x, y, width, 1, colour},
                                  {x, y + height - 1, width, 1, colour},
                                  {x, y, 1, height, colour},
                                  {x + width - 1, y, 1, height, colour}})
    picture.shapes.emplace_back(side);
}

/// Positions along an axis, mapped to units of the picture.
struct Axis {
  int64_t begin, end, step; ///< step: scores per cell
  int cell;
  int64_t at(int64_t position) const { return (position - begin) * cell / step; }
  /// Returns multiples of a power of two that are at least `least` apart.
  std::vector<int64_t> ticks(int64_t least) const {
    int64_t apart = 1;
    while (apart * cell < least * step) apart *= 2;
    std::vector<int64_t> positions;
    for (int64_t position = (begin + apart - 1) / apart * apart; position < end; position += apart)
      positions.push_back(position);
    return positions;
  }
};

void addAxes(Picture& picture, const Panel& panel) {
  const MaskRegion& region = panel.map.region;
  const Axis kv{region.kvBegin, region.kvEnd, panel.map.kvStep, panel.cellWidth};
  const Axis q{region.qBegin, region.qEnd, panel.map.qStep, panel.cellHeight};
  const int widest = int(fmt::to_string(region.kvEnd).size()) * PictureText::kCharWidth;
  for (int64_t position : kv.ticks(std::max(32, widest + 12))) {
    const int x = panel.x + int(kv.at(position));
    picture.shapes.emplace_back(PictureRect{x, panel.y - 5, 1, 5, kFrame});
    picture.shapes.emplace_back(PictureText{x, panel.y - 8, fmt::to_string(position)});
  }
  for (int64_t position : q.ticks(20)) {
    const int y = panel.y + int(q.at(position));
    picture.shapes.emplace_back(PictureRect{panel.x - 5, y, 5, 1, kFrame});
    picture.shapes.emplace_back(
        PictureText{panel.x - 8, y + PictureText::kCharHeight, fmt::to_string(position), PictureText::Anchor::Right});
  }
  picture.shapes.emplace_back(PictureText{panel.x, panel.y - 20, "kv_idx"});
  picture.shapes.emplace_back(PictureText{panel.x - 8, panel.y - 8, "q_idx", PictureText::Anchor::Right});
}

/// Draws the ends of blocks over elements.
void addGrid(Picture& picture, const Panel& panel, const BlockMaskShape& shape) {
  const MaskRegion& region = panel.map.region;
  const auto ends = [](int64_t begin, int64_t end, int64_t block) {
    std::vector<int64_t> at;
    for (int64_t position = (begin / block + 1) * block; position < end; position += block)
      at.push_back(position - begin);
    return at;
  };
  for (int64_t kv : ends(region.kvBegin, region.kvEnd, shape.kvBlock))
    picture.shapes.emplace_back(PictureRect{panel.x + int(kv) * panel.cellWidth, panel.y, 1, panel.height(), kGrid});
  for (int64_t q : ends(region.qBegin, region.qEnd, shape.qBlock))
    picture.shapes.emplace_back(PictureRect{panel.x, panel.y + int(q) * panel.cellHeight, panel.width(), 1, kGrid});
}

void addPanel(Picture& picture, const Panel& panel, const BlockMaskShape& shape) {
  PictureCells cells{panel.x, panel.y, panel.cellWidth, panel.cellHeight, panel.map.columns, {}, kColours};
  for (Cell cell : panel.map.cells) cells.cells.push_back(uint8_t(cell));
  picture.shapes.emplace_back(std::move(cells));
  if (panel.map.ofElements) addGrid(picture, panel, shape);
  addFrame(picture, panel.x, panel.y, panel.width(), panel.height(), kFrame);
  addAxes(picture, panel);
}

struct LegendLine {
  Cell cell;
  std::string words;
};

std::vector<LegendLine> legendOf(const BlockMask& mask, const CellMap& map) {
  const BlockMaskShape& shape = mask.shape();
  const double all = double(shape.batch * shape.heads) * double(shape.qBlocks() * shape.kvBlocks());
  const auto share = [&](int64_t count) { return fmt::format("{:.1f} %", all > 0 ? 100 * double(count) / all : 0); };
  const int64_t full = mask.fullBlocks(), live = mask.liveBlocks();
  std::vector<LegendLine> lines{{Cell::Full, "full blocks: " + share(full)}};
  if (map.qStep > shape.qBlock || map.kvStep > shape.kvBlock)
    lines.push_back({Cell::Mixed, "full ones and others in one cell"});
  lines.push_back({map.ofElements ? Cell::Live : Cell::Partial, "partial blocks: " + share(live - full)});
  if (map.ofElements) lines.push_back({Cell::Masked, "what they mask"});
  lines.push_back({Cell::Empty, "empty blocks: " + share(int64_t(all) - live)});
  return lines;
}

} // namespace

CellLimits pictureCells() { return {.rows = kPlot, .columns = kPlot, .elementsPerCell = 1}; }

Picture maskPicture(const BlockMask& mask, const std::vector<LikeHeads>& groups,
                    const std::vector<std::string>& headings) {
  Picture picture;
  int y = 0;
  const auto addLine = [&](const std::string& words) {
    y += kLine;
    picture.shapes.emplace_back(PictureText{kGap, y, words});
    picture.width = std::max(picture.width, 2 * kGap + int(words.size()) * PictureText::kCharWidth);
  };
  for (const std::string& heading : headings) addLine(heading);
  y += kGap;
  int x = 0, rowHeight = 0;
  for (size_t i = 0; i < std::min(groups.size(), kMostPanels); ++i) {
    const std::string heading = headsText(groups[i], mask.shape());
    const int above = heading.empty() ? kTop : kTop + kLine;
    Panel panel(groups[i].map, groups.size() > 1 ? kSmallPlot : kPlot);
    const int width = kLeft + std::max(panel.width(), int(heading.size()) * PictureText::kCharWidth) + kGap;
    if (x > 0 && x + width > kWidest) {
      x = 0;
      y += rowHeight;
      rowHeight = 0;
    }
    panel.x = x + kLeft;
    panel.y = y + above;
    addPanel(picture, panel, mask.shape());
    if (!heading.empty()) picture.shapes.emplace_back(PictureText{panel.x, y + kLine, heading});
    rowHeight = std::max(rowHeight, above + panel.height() + kGap);
    x += width;
    picture.width = std::max(picture.width, x);
  }
  y += rowHeight;
  if (groups.size() > kMostPanels)
    addLine(fmt::format("{} more look different: --batch and --head choose", groups.size() - kMostPanels));
  for (const LegendLine& line : legendOf(mask, groups.front().map)) {
    y += kLine;
    picture.shapes.emplace_back(PictureRect{kLeft, y - 9, 10, 10, colourOf(line.cell)});
    addFrame(picture, kLeft, y - 9, 10, 10, kFrame);
    picture.shapes.emplace_back(PictureText{kLeft + 16, y, line.words});
    picture.width = std::max(picture.width, kLeft + 16 + int(line.words.size()) * PictureText::kCharWidth + kGap);
  }
  picture.height = y + kGap;
  return picture;
}

} // namespace attnc::cli
