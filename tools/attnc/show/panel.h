// Panels of a picture: cells with axes of q_idx and kv_idx, in rows.
#pragma once

#include "show/mask_map.h"
#include "show/picture.h"

#include <functional>
#include <string>
#include <vector>

namespace attnc::cli {

/// Maximum number of panels of a picture.
constexpr size_t kMostPanels = 12;

constexpr int kPanelSide = 512, kSmallPanelSide = 256; // longer side of a single panel, and of one among several
constexpr int kLine = 14, kGap = 16;                   // height of a line of words; space around panels
constexpr int kPanelLeft = 66;                         // left of a panel: space for q_idx and its numbers

/// The size of a panel's cells, and its position.
struct Panel {
  int x = 0, y = 0; ///< position of the cells
  int cellWidth = 1, cellHeight = 1;
  int width = 0, height = 0;
};

/// A panel that is not placed yet.
struct PanelDrawing {
  const CellGrid& grid;
  std::string heading;                               ///< "" if it has none
  std::function<void(Picture&, const Panel&)> cells; ///< draws what lies between the axes
};

/// Adds lines of words below the others at `y`. Returns where they end.
int addLines(Picture& picture, int y, const std::vector<std::string>& lines);

/// Adds the frame of a rectangle, one unit wide, inside it.
void addFrame(Picture& picture, int x, int y, int width, int height, Rgb colour);

/// Adds a line of a legend, with its base line at `y`: a framed square, and words.
void addLegendLine(Picture& picture, int x, int y, Rgb colour, const std::string& words);

/// Places panels in rows from `y` on. Returns where they end.
int addPanels(Picture& picture, int y, const std::vector<PanelDrawing>& panels);

} // namespace attnc::cli
