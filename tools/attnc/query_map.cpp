#include "query_map.h"

#include "attnc/explain.h"
#include "support/try.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace attnc::cli {
namespace {

constexpr int kGap = 16, kLine = 14, kSide = 288, kLargestCell = 14, kWidest = 1200; // sizes in a picture
constexpr int64_t kMostKeys = int64_t(1) << 18, kLongestSide = 1024;
constexpr Rgb kFrame = 0x808080;
const std::vector<Rgb> kColours{0xe3eefa, 0x4d8ad2, 0xd55e00}; // indexed by KeyCell

int64_t tokensOf(const GridExtents& grid) {
  int64_t product = 1;
  for (int64_t extent : grid.extents) product *= extent;
  return product;
}

/// Returns the token at coordinates; nullopt if they lie outside the grid.
std::optional<int64_t> tokenAt(const GridExtents& grid, const std::vector<int64_t>& coordinates) {
  if (coordinates.size() != grid.extents.size()) return std::nullopt;
  int64_t token = 0;
  for (size_t axis = 0; axis < grid.extents.size(); ++axis) {
    if (coordinates[axis] < 0 || coordinates[axis] >= grid.extents[axis]) return std::nullopt;
    token = token * grid.extents[axis] + coordinates[axis];
  }
  return grid.before + token;
}

Expected<int64_t> positionOf(const std::vector<int64_t>& query, const std::optional<GridExtents>& grid, int64_t qLen) {
  const std::string text = fmt::format("{}", fmt::join(query, ","));
  std::optional<int64_t> position;
  if (query.size() == 1)
    position = query[0];
  else if (grid)
    position = tokenAt(*grid, query);
  if (position && *position >= 0 && *position < qLen) return *position;
  const std::string extents = grid ? fmt::format(", or on its grid of {}", fmt::join(grid->extents, " x ")) : "";
  return Error::environment(fmt::format("there is no query {}", text),
                            fmt::format("it lies in 0..{} by its position{}", qLen - 1, extents));
}

QueryMap mapOf(const MaskReader& reader, const GridExtents& keys, int64_t kvLen, int64_t b, int64_t h, int64_t query) {
  QueryMap map;
  map.extents = {1, 1, 1};
  std::copy_backward(keys.extents.begin(), keys.extents.end(), map.extents.end());
  const int64_t end = keys.before + tokensOf(keys);
  for (int64_t kv = 0; kv < kvLen; ++kv) {
    const bool isSeen = reader.isLive(b, h, query, kv);
    const bool isOnGrid = kv >= keys.before && kv < end;
    (isOnGrid ? map.seen : map.seenBeside) += isSeen;
    if (isOnGrid)
      map.cells.push_back(isSeen ? KeyCell::Seen : KeyCell::Unseen);
    else
      ++map.beside;
  }
  return map;
}

std::string countText(const QueryMap& map) {
  std::string text = fmt::format("{}: sees {} of {} keys", map.heading, map.seen, map.cells.size());
  if (map.beside > 0) text += fmt::format(", and {} of {} beside the grid", map.seenBeside, map.beside);
  return text;
}

} // namespace

Expected<std::vector<QueryMap>> queryMaps(const Mod& mod, const Captures& captures, const ProblemShape& problem,
                                          const std::vector<std::vector<int64_t>>& queries, int64_t b, int64_t h) {
  ATTNC_TRY_AS(grids, gridsOf(mod, captures, problem));
  if (!grids->keys)
    return Error::environment("the mod takes coordinates of kv_idx on no grid, or on several",
                              "declare it, image = grid(HEIGHT, WIDTH), and ask for image.coords(kv_idx)");
  const GridExtents& keys = *grids->keys;
  const std::optional<GridExtents>& ofQueries = grids->queries;
  const int64_t needed = keys.before + tokensOf(keys);
  if (problem.kvLen < needed)
    return Error::environment(fmt::format("the grid of keys ends at token {}, but KV_LEN is {}", needed, problem.kvLen),
                              fmt::format("give the problem all of it: --shape {}", needed));
  if (tokensOf(keys) > kMostKeys || *std::max_element(keys.extents.begin(), keys.extents.end()) > kLongestSide)
    return Error::environment(fmt::format("a grid of {} is more than a map shows: {} keys, {} along an axis",
                                          fmt::join(keys.extents, " x "), kMostKeys, kLongestSide),
                              "draw a smaller one, by -D or --set of its extents");
  ATTNC_TRY_AS(reader, MaskReader::create(mod, captures, problem));
  const bool isOneGrid = ofQueries && ofQueries->extents == keys.extents && ofQueries->before == keys.before;
  std::vector<QueryMap> maps;
  for (const std::vector<int64_t>& query : queries) {
    ATTNC_TRY_AS(position, positionOf(query, ofQueries, problem.qLen));
    QueryMap map = mapOf(*reader, keys, problem.kvLen, b, h, *position);
    map.heading =
        query.size() > 1 ? fmt::format("query ({})", fmt::join(query, ", ")) : fmt::format("query {}", *position);
    const int64_t token = *position - keys.before;
    if (isOneGrid && token >= 0 && token < tokensOf(keys)) map.cells[size_t(token)] = KeyCell::Query;
    maps.push_back(std::move(map));
  }
  return maps;
}

std::string queryText(const std::vector<QueryMap>& maps) {
  std::string text;
  for (const QueryMap& map : maps) {
    text += "\n" + countText(map) + "\n";
    const auto [slices, rows, columns] = map.extents;
    size_t at = 0;
    for (int64_t z = 0; z < slices; ++z) {
      if (slices > 1) text += fmt::format("{}:\n", z);
      for (int64_t y = 0; y < rows; ++y, text += "\n")
        for (int64_t x = 0; x < columns; ++x) {
          const KeyCell cell = map.cells[at++];
          text += cell == KeyCell::Query ? "▓▓" : cell == KeyCell::Seen ? "██" : "··";
        }
    }
  }
  return text;
}

Picture queryPicture(const std::vector<QueryMap>& maps, const std::vector<std::string>& headings) {
  Picture picture;
  int y = 0;
  const auto addText = [&](int x, int line, const std::string& words) {
    picture.shapes.emplace_back(PictureText{x, line, words});
    picture.width = std::max(picture.width, x + int(words.size()) * PictureText::kCharWidth + kGap);
  };
  for (const std::string& heading : headings) addText(kGap, y += kLine, heading);
  int x = kGap, top = y + kGap, rowHeight = 0;
  for (const QueryMap& map : maps) {
    const auto [slices, rows, columns] = map.extents;
    const int cell = int(std::clamp<int64_t>(kSide / std::max(rows, columns), 1, kLargestCell));
    const int sliceWidth = int(columns) * cell, sliceHeight = int(rows) * cell;
    const int perRow = int(std::clamp<int64_t>((kWidest + kLine) / (sliceWidth + kLine), 1, slices));
    const int width =
        std::max(perRow * (sliceWidth + kLine) - kLine, int(countText(map).size()) * PictureText::kCharWidth);
    if (x > kGap && x + width > kWidest) {
      x = kGap;
      top += rowHeight + kGap;
      rowHeight = 0;
    }
    addText(x, top + kLine, countText(map));
    const int64_t area = rows * columns;
    for (int64_t z = 0; z < slices; ++z) {
      const int left = x + int(z % perRow) * (sliceWidth + kLine);
      const int above = top + kLine + 8 + int(z / perRow) * (sliceHeight + kLine);
      PictureCells cells{left, above, cell, cell, columns, {}, kColours};
      for (int64_t i = z * area; i < (z + 1) * area; ++i) cells.cells.push_back(uint8_t(map.cells[size_t(i)]));
      picture.shapes.emplace_back(PictureRect{left - 1, above - 1, sliceWidth + 2, sliceHeight + 2, kFrame});
      picture.shapes.emplace_back(std::move(cells));
    }
    picture.width = std::max(picture.width, x + width + kGap);
    const int sliceRows = (int(slices) + perRow - 1) / perRow;
    rowHeight = std::max(rowHeight, kLine + 8 + sliceRows * (sliceHeight + kLine) - kLine);
    x += width + 2 * kGap;
  }
  picture.height = top + rowHeight + kGap;
  return picture;
}

} // namespace attnc::cli
