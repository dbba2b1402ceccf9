#include "show/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace attnc::cli {
namespace {

/// What colours of all pictures become in dark surroundings.
const std::map<Rgb, Rgb> kDark{
    {kPaper, 0x0d1117},
    {kInk, 0xe6edf3},
    {kFaintInk, 0x9da7b3},
    {kFrame, 0x6e7681},
    {0xb4bcc6, 0x3d444d},
    {0xdddddd, 0x30363d}, // lines of a grid
    {0x9cc3ee, 0x24466f},
    {0x7fa9dd, 0x34629c},
    {0x5088cc, 0x5794dd}, // partial blocks, mixed cells
    {0x1f4e8c, 0x9ccbff},
    {0x4d8ad2, 0x3f7cc4},
    {0xe3eefa, 0x16253a},
    {0xd55e00, 0xff8b3d}, // full blocks, scores,
                          // marks
    {0x0072b2, 0x56a8e8},
    {0x009e73, 0x2fc79a},
    {0xcc79a7, 0xe29ac4}, // series
};

std::string escaped(const std::string& text) {
  std::string result;
  for (char c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else
      result += c >= ' ' && c <= '~' ? c : '?';
  }
  return result;
}

struct CellRect {
  int64_t column, row, columns, rows;
};

/// Returns rectangles that cover the cells of a kind, and other cells only if a later kind is drawn over them. A
/// rectangle is a run along a row that the rows below repeat.
std::vector<CellRect> rectsOf(const PictureCells& cells, uint8_t kind) {
  std::vector<CellRect> done;
  std::map<int64_t, CellRect> open; // by first column
  const int64_t rows = cells.columns ? int64_t(cells.cells.size()) / cells.columns : 0;
  for (int64_t row = 0; row < rows; ++row) {
    const uint8_t* line = cells.cells.data() + row * cells.columns;
    std::map<int64_t, CellRect> next;
    for (int64_t column = 0; column < cells.columns; ++column) {
      const int64_t first = column;
      bool isThere = false;
      for (; column < cells.columns && line[column] >= kind; ++column) isThere |= line[column] == kind;
      if (!isThere) continue;
      CellRect rect{first, row, column - first, 1};
      if (auto above = open.find(first); above != open.end() && above->second.columns == rect.columns) {
        rect = above->second;
        ++rect.rows;
        open.erase(above);
      }
      next.emplace(first, rect);
    }
    for (const auto& [first, rect] : open) done.push_back(rect);
    open = std::move(next);
  }
  for (const auto& [first, rect] : open) done.push_back(rect);
  return done;
}

struct SvgWriter {
  std::string text;
  bool hasHatch = false;

  void operator()(const PictureRect& rect) {
    text += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#{:06x}\"/>\n", rect.x, rect.y,
                        rect.width, rect.height, rect.colour);
  }

  void operator()(const PictureText& words) {
    const char* anchor = words.anchor == PictureText::Anchor::Left     ? ""
                         : words.anchor == PictureText::Anchor::Middle ? " text-anchor=\"middle\""
                                                                       : " text-anchor=\"end\"";
    const std::string turn = words.isUpright ? fmt::format(" transform=\"rotate(-90 {} {})\"", words.x, words.y) : "";
    text += fmt::format("<text x=\"{}\" y=\"{}\" fill=\"#{:06x}\"{}{}>{}</text>\n", words.x, words.y, words.colour,
                        anchor, turn, escaped(words.text));
  }

  void operator()(const PictureHatch& hatch) {
    text += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"url(#hatch)\"/>\n", hatch.x, hatch.y,
                        hatch.width, hatch.height);
    hasHatch = true;
  }

  void operator()(const PictureLine& line) {
    std::string points;
    for (const auto& [x, y] : line.points) points += fmt::format("{}{} {}", points.empty() ? "" : " ", x, y);
    text +=
        fmt::format("<polyline fill=\"none\" stroke=\"#{:06x}\" stroke-width=\"{}\"{} transform=\"scale(.125)\" "
                    "shape-rendering=\"auto\" points=\"{}\"/>\n",
                    line.colour, line.isDashed ? 8 : 16, line.isDashed ? " stroke-dasharray=\"32 32\"" : "", points);
  }

  void operator()(const PictureCells& cells) {
    for (size_t kind = 0; kind < cells.colours.size(); ++kind) {
      std::string path;
      for (const CellRect& rect : rectsOf(cells, uint8_t(kind)))
        path += fmt::format("M{} {}h{}v{}h-{}", rect.column, rect.row, rect.columns, rect.rows, rect.columns);
      if (path.empty() || (kind == 0 && cells.colours[kind] == kPaper)) continue;
      text += fmt::format("<path fill=\"#{:06x}\" transform=\"translate({} {}) scale({} {})\" d=\"{}\"/>\n",
                          cells.colours[kind], cells.x, cells.y, cells.cellWidth, cells.cellHeight, path);
    }
  }
};

} // namespace

void Picture::add(PictureText words) {
  const int end = words.isUpright                               ? words.x
                  : words.anchor == PictureText::Anchor::Left   ? words.x + words.width()
                  : words.anchor == PictureText::Anchor::Middle ? words.x + (words.width() + 1) / 2
                                                                : words.x;
  width = std::max(width, end + 4);
  shapes.emplace_back(std::move(words));
}

std::string svgOf(const Picture& picture, const std::string& title) {
  SvgWriter writer;
  for (const auto& shape : picture.shapes) std::visit(writer, shape);
  const std::string hatch = writer.hasHatch
                                ? "<pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
                                  "patternTransform=\"rotate(45)\"><path stroke=\"#808080\" shape-rendering=\"auto\" "
                                  "d=\"M0 0v6\"/></pattern>\n"
                                : "";
  std::string body = fmt::format("<title>{}</title>\n{}<rect width=\"{}\" height=\"{}\" fill=\"#{:06x}\"/>\n{}",
                                 escaped(title), hatch, picture.width, picture.height, kPaper, writer.text);
  std::map<Rgb, Rgb> dark = kDark;
  dark.insert(picture.dark.begin(), picture.dark.end());
  std::string rules;
  for (const auto& [colour, other] : dark)
    for (const char* attribute : {"fill", "stroke"})
      if (const std::string value = fmt::format("{}=\"#{:06x}\"", attribute, colour); body.find(value) != body.npos)
        rules += fmt::format("[{}]{{{}:#{:06x}}}", value, attribute, other);
  return fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
                     "font-family=\"monospace\" font-size=\"10\" shape-rendering=\"crispEdges\">\n"
                     "<style>@media(prefers-color-scheme:dark){{{2}}}</style>\n{3}</svg>\n",
                     picture.width, picture.height, rules, body);
}

} // namespace attnc::cli
