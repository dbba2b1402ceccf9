// Pictures of a few flat shapes and words, as SVG. Integer coordinates make the bytes of a picture the same on every
// machine.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace attnc::cli {

using Rgb = uint32_t; ///< 0xrrggbb

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
  Rgb colour = 0x202020;
  static constexpr int kCharWidth = 6, kCharHeight = 7;
};

/// Cells of equal size, row by row, with colours from a table.
struct PictureCells {
  int x = 0, y = 0, cellWidth = 1, cellHeight = 1;
  int64_t columns = 0;
  std::vector<uint8_t> cells; ///< indices into `colours`
  std::vector<Rgb> colours;
};

/// Shapes, drawn in order on white.
struct Picture {
  int width = 0, height = 0;
  std::vector<std::variant<PictureRect, PictureCells, PictureText>> shapes;
};

/// Returns the SVG. `title` is the text for screen readers.
std::string svgOf(const Picture& picture, const std::string& title);

} // namespace attnc::cli
