#include "show/panel.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnc::cli {
namespace {

constexpr int kThin = 24;     // minimum of a panel's shorter side
constexpr int kPanelTop = 40; // above a panel: space for kv_idx and its numbers
constexpr int kWidestRow = 1400;

Panel sized(const CellGrid& grid, int64_t longest) {
  const int64_t cell = std::max<int64_t>(1, longest / std::max<int64_t>({grid.rows, grid.columns, 1}));
  const auto side = [&](int64_t cells) {
    return int(cells * cell >= kThin || cells == 0 ? cell : (kThin + cells - 1) / cells);
  };
  Panel panel;
  panel.cellWidth = side(grid.columns);
  panel.cellHeight = side(grid.rows);
  panel.width = int(grid.columns) * panel.cellWidth;
  panel.height = int(grid.rows) * panel.cellHeight;
  return panel;
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

void addAxes(Picture& picture, const Panel& panel, const CellGrid& grid) {
  using Anchor = PictureText::Anchor;
  const MaskRegion& region = grid.region;
  const Axis kv{region.kvBegin, region.kvEnd, grid.kvStep, panel.cellWidth};
  const Axis q{region.qBegin, region.qEnd, grid.qStep, panel.cellHeight};
  const int widest = int(fmt::to_string(region.kvEnd).size()) * PictureText::kCharWidth;
  for (int64_t position : kv.ticks(std::max(32, widest + 12))) {
    const int x = panel.x + int(kv.at(position));
    picture.shapes.emplace_back(PictureRect{x, panel.y - 5, 1, 5, kFrame});
    picture.add({x, panel.y - 8, fmt::to_string(position), Anchor::Middle});
  }
  for (int64_t position : q.ticks(20)) {
    const int y = panel.y + int(q.at(position));
    picture.shapes.emplace_back(PictureRect{panel.x - 5, y, 5, 1, kFrame});
    picture.add({panel.x - 8, y + PictureText::kCharHeight / 2, fmt::to_string(position), Anchor::Right});
  }
  picture.add({panel.x + panel.width / 2, panel.y - 22, "kv_idx", Anchor::Middle, kFaintInk});
  picture.add({panel.x - kPanelLeft + 14, panel.y + panel.height / 2, "q_idx", Anchor::Middle, kFaintInk, true});
}

} // namespace

int addLines(Picture& picture, int y, const std::vector<std::string>& lines) {
  for (const std::string& words : lines) {
    picture.add({kGap, y += kLine, words});
    picture.width = std::max(picture.width, 2 * kGap + int(words.size()) * PictureText::kCharWidth);
  }
  return y;
}

void addFrame(Picture& picture, int x, int y, int width, int height, Rgb colour) {
  for (const PictureRect& side : {PictureRect{x, y, width, 1, colour},
                                  {x, y + height - 1, width, 1, colour},
                                  {x, y, 1, height, colour},
                                  {x + width - 1, y, 1, height, colour}})
    picture.shapes.emplace_back(side);
}

void addLegendLine(Picture& picture, int x, int y, Rgb colour, const std::string& words) {
  picture.shapes.emplace_back(PictureRect{x, y - 9, 10, 10, colour});
  addFrame(picture, x, y - 9, 10, 10, kFrame);
  picture.add({x + 16, y, words});
}

int addPanels(Picture& picture, int y, const std::vector<PanelDrawing>& panels) {
  int x = 0, rowHeight = 0;
  for (const PanelDrawing& drawing : panels) {
    Panel panel = sized(drawing.grid, panels.size() > 1 ? kSmallPanelSide : kPanelSide);
    const int above = kPanelTop + (drawing.heading.empty() ? 0 : kLine);
    const PictureText heading{0, 0, drawing.heading};
    const int width = kPanelLeft + std::max(panel.width, heading.width()) + kGap;
    if (x > 0 && x + width > kWidestRow) {
      x = 0;
      y += rowHeight;
      rowHeight = 0;
    }
    panel.x = x + kPanelLeft;
    panel.y = y + above;
    drawing.cells(picture, panel);
    addFrame(picture, panel.x, panel.y, panel.width, panel.height, kFrame);
    addAxes(picture, panel, drawing.grid);
    if (!drawing.heading.empty()) picture.add({panel.x, y + kLine, drawing.heading});
    rowHeight = std::max(rowHeight, above + panel.height + kGap);
    x += width;
    picture.width = std::max(picture.width, x);
  }
  return y + rowHeight;
}

} // namespace attnc::cli
