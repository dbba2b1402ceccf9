#include "picture.h"

#include <fmt/format.h>

#include <map>

namespace attnc::cli {
namespace {

constexpr Rgb kWhite = 0xffffff;

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

  void operator()(const PictureRect& rect) {
    text += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#{:06x}\"/>\n", rect.x, rect.y,
                        rect.width, rect.height, rect.colour);
  }

  void operator()(const PictureText& words) {
    const char* anchor = words.anchor == PictureText::Anchor::Left     ? ""
                         : words.anchor == PictureText::Anchor::Middle ? " text-anchor=\"middle\""
                                                                       : " text-anchor=\"end\"";
    text += fmt::format("<text x=\"{}\" y=\"{}\" fill=\"#{:06x}\"{}>{}</text>\n", words.x, words.y, words.colour,
                        anchor, escaped(words.text));
  }

  void operator()(const PictureCells& cells) {
    for (size_t kind = 0; kind < cells.colours.size(); ++kind) {
      std::string path;
      for (const CellRect& rect : rectsOf(cells, uint8_t(kind)))
        path += fmt::format("M{} {}h{}v{}h-{}", rect.column, rect.row, rect.columns, rect.rows, rect.columns);
      if (path.empty() || (kind == 0 && cells.colours[kind] == kWhite)) continue;
      text += fmt::format("<path fill=\"#{:06x}\" transform=\"translate({} {}) scale({} {})\" d=\"{}\"/>\n",
                          cells.colours[kind], cells.x, cells.y, cells.cellWidth, cells.cellHeight, path);
    }
  }
};

} // namespace

std::string svgOf(const Picture& picture, const std::string& title) {
  SvgWriter writer;
  for (const auto& shape : picture.shapes) std::visit(writer, shape);
  return fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
                     "font-family=\"monospace\" font-size=\"10\" shape-rendering=\"crispEdges\">\n<title>{2}</title>\n"
                     "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n{3}</svg>\n",
                     picture.width, picture.height, escaped(title), writer.text);
}

} // namespace attnc::cli
