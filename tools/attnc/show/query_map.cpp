#include "show/query_map.h"

#include "show/panel.h"

#include "attnc/explain.h"
#include "support/try.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace attnc::cli {
namespace {

constexpr int kSide = 288, kLargestCell = 14, kWidest = 1200; // sizes in a picture
constexpr int kAxisLeft = 40, kAxisTop = 32;                  // left of and above cells: space for y and x
constexpr int64_t kMostKeys = int64_t(1) << 18, kLongestSide = 1024;
const std::vector<Rgb> kKeyColours{0xe3eefa, 0x9cc3ee, 0x4d8ad2, 0xd55e00}; // indexed by KeyCell

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

/// Returns the box of the lattice that holds the token, cut at the end of the grid.
GridBox boxOf(const std::array<int64_t, 3>& grid, const std::vector<int64_t>& box, int64_t token) {
  const std::array<int64_t, 3> place{token / grid[2] / grid[1], token / grid[2] % grid[1], token % grid[2]};
  GridBox result;
  for (size_t axis = 0; axis < 3; ++axis) {
    const size_t missing = 3 - box.size();
    const int64_t extent = axis < missing ? 1 : box[axis - missing];
    result.begin[axis] = place[axis] / extent * extent;
    result.end[axis] = std::min(result.begin[axis] + extent, grid[axis]);
  }
  return result;
}

/// Adds the box around the query at this token of the grid, and marks the keys that the other queries of the box see.
void addBox(QueryMap& map, const MaskReader& reader, int64_t before, int64_t b, int64_t h, int64_t token,
            const std::vector<int64_t>& extents) {
  const std::array<int64_t, 3>& grid = map.extents;
  QueryBox box{boxOf(grid, extents, token), {grid, {0, 0, 0}}};
  for (int64_t z = box.queries.begin[0]; z < box.queries.end[0]; ++z)
    for (int64_t y = box.queries.begin[1]; y < box.queries.end[1]; ++y)
      for (int64_t x = box.queries.begin[2]; x < box.queries.end[2]; ++x) {
        const int64_t query = before + (z * grid[1] + y) * grid[2] + x;
        for (int64_t key = 0; key < int64_t(map.cells.size()); ++key) {
          if (!reader.isLive(b, h, query, before + key)) continue;
          ++box.live;
          if (KeyCell& cell = map.cells[size_t(key)]; cell == KeyCell::Unseen) cell = KeyCell::SeenByBox;
          const GridBox place = boxOf(grid, {1, 1, 1}, key);
          for (size_t axis = 0; axis < 3; ++axis) {
            box.keys.begin[axis] = std::min(box.keys.begin[axis], place.begin[axis]);
            box.keys.end[axis] = std::max(box.keys.end[axis], place.end[axis]);
          }
        }
      }
  if (box.live == 0) box.keys = box.queries;
  map.box = box;
}

/// "8 x 8", of as many axes as the grid has
std::string extentsText(const GridBox& box, const std::array<int64_t, 3>& grid) {
  std::string text;
  for (size_t axis = 0; axis < 3; ++axis)
    if (axis > 0 || grid[0] > 1)
      text += fmt::format("{}{}", text.empty() ? "" : " x ", box.end[axis] - box.begin[axis]);
  return text;
}

/// Returns what a box costs; "" if there is no box.
std::string boxText(const QueryMap& map) {
  if (!map.box) return "";
  const double pairs = double(map.box->queries.tokens()) * double(map.box->keys.tokens());
  return fmt::format("{} queries read {} keys; of these pairs {:.1f} % live",
                     extentsText(map.box->queries, map.extents), extentsText(map.box->keys, map.extents),
                     100 * double(map.box->live) / pairs);
}

std::string countText(const QueryMap& map) {
  std::string text = fmt::format("{}: sees {} of {} keys", map.heading, map.seen, map.cells.size());
  if (map.beside > 0) text += fmt::format(", and {} of {} off the grid", map.seenBeside, map.beside);
  return text;
}

} // namespace

Expected<std::vector<QueryMap>> queryMaps(const Mod& mod, const Captures& captures, const ProblemShape& problem,
                                          const std::vector<std::vector<int64_t>>& queries, int64_t b, int64_t h,
                                          const std::vector<int64_t>& box) {
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
    const bool isOnGrid = isOneGrid && token >= 0 && token < tokensOf(keys);
    if (!box.empty()) {
      if (!isOnGrid || box.size() != keys.extents.size())
        return Error::environment("no such box holds the query",
                                  fmt::format("boxes are of tokens on a grid of {}, the same of queries and of keys",
                                              fmt::join(keys.extents, " x ")));
      addBox(map, *reader, keys.before, b, h, token, box);
    }
    if (isOnGrid) map.cells[size_t(token)] = KeyCell::Query;
    maps.push_back(std::move(map));
  }
  return maps;
}

std::string queryText(const std::vector<QueryMap>& maps) {
  std::string text;
  for (const QueryMap& map : maps) {
    text += "\n" + countText(map) + "\n";
    if (map.box) text += boxText(map) + "\n";
    const auto [slices, rows, columns] = map.extents;
    size_t at = 0;
    for (int64_t z = 0; z < slices; ++z) {
      if (slices > 1) text += fmt::format("{}:\n", z);
      for (int64_t y = 0; y < rows; ++y, text += "\n")
        for (int64_t x = 0; x < columns; ++x) {
          const KeyCell cell = map.cells[at++];
          text += cell == KeyCell::Query       ? "▓▓"
                  : cell == KeyCell::Seen      ? "██"
                  : cell == KeyCell::SeenByBox ? "░░"
                                               : "··";
        }
    }
  }
  return text;
}

/// Draws ticks of an axis from (x, y) on, with its name.
static void addAxis(Picture& picture, int x, int y, bool isAcross, int64_t cells, int cell) {
  using Anchor = PictureText::Anchor;
  int64_t apart = 1;
  while (apart * cell < (isAcross ? 28 : 20)) apart *= 2;
  const int length = int(cells) * cell;
  for (int64_t position = 0; position < cells; position += apart) {
    const int at = int(position) * cell + cell / 2;
    picture.shapes.emplace_back(isAcross ? PictureRect{x + at, y - 5, 1, 4, kFrame}
                                         : PictureRect{x - 5, y + at, 4, 1, kFrame});
    const std::string number = fmt::to_string(position);
    picture.add(isAcross ? PictureText{x + at, y - 8, number, Anchor::Middle}
                         : PictureText{x - 8, y + at + PictureText::kCharHeight / 2, number, Anchor::Right});
  }
  picture.add(isAcross ? PictureText{x + length / 2, y - 20, "x", Anchor::Middle, kFaintInk}
                       : PictureText{x - 28, y + length / 2, "y", Anchor::Middle, kFaintInk});
}

/// Draws the outline of a box where it crosses slice z, whose cells begin at (x, y).
static void addOutline(Picture& picture, const GridBox& box, int64_t z, int x, int y, int cell, Rgb colour) {
  if (z < box.begin[0] || z >= box.end[0]) return;
  const int left = x + int(box.begin[2]) * cell, width = int(box.end[2] - box.begin[2]) * cell;
  const int top = y + int(box.begin[1]) * cell, height = int(box.end[1] - box.begin[1]) * cell;
  for (int inset : {-1, 0}) addFrame(picture, left + inset, top + inset, width - 2 * inset, height - 2 * inset, colour);
}

Picture queryPicture(const std::vector<QueryMap>& maps, const std::vector<std::string>& headings) {
  Picture picture;
  int x = kGap, top = addLines(picture, 0, headings) + kGap / 2, rowHeight = 0;
  bool hasQuery = false, hasBox = false;
  for (const QueryMap& map : maps) {
    const auto [slices, rows, columns] = map.extents;
    const int cell = int(std::clamp<int64_t>(kSide / std::max(rows, columns), 1, kLargestCell));
    const int sliceWidth = int(columns) * cell, sliceHeight = int(rows) * cell;
    const int perRow = int(std::clamp<int64_t>((kWidest + kGap) / (sliceWidth + kGap), 1, slices));
    const int between = slices > 1 ? kGap + kLine : kGap; // of rows of slices: the next one has a heading
    const int words = int(std::max(countText(map).size(), boxText(map).size())) * PictureText::kCharWidth;
    const int width = std::max(kAxisLeft + perRow * (sliceWidth + kGap) - kGap, words);
    if (x > kGap && x + width > kWidest) {
      x = kGap;
      top += rowHeight + kGap;
      rowHeight = 0;
    }
    picture.add({x, top + kLine, countText(map)});
    if (map.box) picture.add({x, top + 2 * kLine, boxText(map)});
    hasBox |= map.box.has_value();
    const int64_t area = rows * columns;
    const int first = top + kLine + (map.box ? kLine : 0) + (slices > 1 ? kLine : 0) + kAxisTop;
    for (int64_t z = 0; z < slices; ++z) {
      const int left = x + kAxisLeft + int(z % perRow) * (sliceWidth + kGap);
      const int above = first + int(z / perRow) * (sliceHeight + between);
      PictureCells cells{left, above, cell, cell, columns, {}, kKeyColours};
      for (int64_t i = z * area; i < (z + 1) * area; ++i) {
        cells.cells.push_back(uint8_t(map.cells[size_t(i)]));
        hasQuery |= map.cells[size_t(i)] == KeyCell::Query;
      }
      picture.shapes.emplace_back(PictureRect{left - 1, above - 1, sliceWidth + 2, sliceHeight + 2, kFrame});
      picture.shapes.emplace_back(std::move(cells));
      if (map.box) {
        addOutline(picture, map.box->keys, z, left, above, cell, kFrame);
        addOutline(picture, map.box->queries, z, left, above, cell, kInk);
      }
      if (z < perRow) addAxis(picture, left, above, /*isAcross=*/true, columns, cell);
      if (z % perRow == 0) addAxis(picture, left, above, /*isAcross=*/false, rows, cell);
      if (slices > 1) picture.add({left, above - (z < perRow ? kAxisTop : 4), fmt::format("z = {}", z)});
    }
    picture.width = std::max(picture.width, x + width + kGap);
    const int sliceRows = (int(slices) + perRow - 1) / perRow;
    rowHeight = std::max(rowHeight, first - top + sliceRows * (sliceHeight + between) - between);
    x += width + 2 * kGap;
  }
  int y = top + rowHeight + kGap / 2;
  const auto addLegend = [&](KeyCell cell, const char* words) {
    addLegendLine(picture, kGap, y += kLine, kKeyColours[size_t(cell)], words);
  };
  if (hasQuery) addLegend(KeyCell::Query, "the query, at its own place");
  addLegend(KeyCell::Seen, "a key that it sees; a cell is one token");
  if (hasBox) addLegend(KeyCell::SeenByBox, "a key that another query of its box sees");
  addLegend(KeyCell::Unseen, hasBox ? "other keys" : "a key that it does not see");
  if (hasBox)
    picture.add({kGap, y += kLine, "strong outline: the box of queries; faint outline: the keys that it reads"});
  picture.height = y + kGap;
  return picture;
}

} // namespace attnc::cli
