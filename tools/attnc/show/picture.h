// Pictures of a few flat shapes and words, as SVG. Integer coordinates make the bytes of a picture the same on every
// machine.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace attnc::cli {

using Rgb = uint32_t; ///< 0xrrggbb

constexpr Rgb kInk = 0x202020, kFaintInk = 0x606060, kPaper = 0xffffff, kFrame = 0x808080;

struct PictureRect {
  int x = 0, y = 0, width = 0, height = 0;
  Rgb colour = 0;
};

/// Words of printable ASCII; other bytes become '?'. Characters are kCharWidth wide.
struct PictureText {
  enum class Anchor { Left, Middle, Right };
  int x = 0, y = 0; ///< the anchor on the base line
  std::string text;
  Anchor anchor = Anchor::Left;
  Rgb colour = kInk;
  bool isUpright = false; ///< whether the words run upwards from the anchor
  static constexpr int kCharWidth = 6, kCharHeight = 7;
  int width() const { return int(text.size()) * kCharWidth; }
};

/// Cells of equal size, row by row, with colours from a table.
struct PictureCells {
  int x = 0, y = 0, cellWidth = 1, cellHeight = 1;
  int64_t columns = 0;
  std::vector<uint8_t> cells; ///< indices into `colours`
  std::vector<Rgb> colours;
};

/// A rectangle of thin diagonal lines.
struct PictureHatch {
  int x = 0, y = 0, width = 0, height = 0;
};

/// A line from point to point, in eighths of a unit.
struct PictureLine {
  std::vector<std::pair<int, int>> points;
  Rgb colour = kInk;
  bool isDashed = false;
};

/// Shapes, drawn in order on kPaper.
struct Picture {
  int width = 0, height = 0;
  std::vector<std::variant<PictureRect, PictureCells, PictureText, PictureHatch, PictureLine>> shapes;
  std::map<Rgb, Rgb> dark; ///< what colours become in dark surroundings, besides those that svgOf() knows

  /// Adds words, and widens the picture so that they have room.
  void add(PictureText words);
};

/// Returns the SVG. Its colours follow the surroundings (prefers-color-scheme). `title` is the text for screen readers.
std::string svgOf(const Picture& picture, const std::string& title);

} // namespace attnc::cli
