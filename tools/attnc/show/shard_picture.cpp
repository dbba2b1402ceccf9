#include "show/shard_picture.h"

#include "show/panel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace attnc::cli {
namespace {

/// Colours of eight ranks: of blocks with own keys, and of blocks whose keys travel.
constexpr std::array<std::pair<Rgb, Rgb>, 8> kRanks{{{0x0072b2, 0x9ecae8},
                                                     {0xd55e00, 0xf5c19a},
                                                     {0x009e73, 0x9fdcc7},
                                                     {0xb8860b, 0xecd79c},
                                                     {0x8a4fbf, 0xd6bdec},
                                                     {0xc2185b, 0xf0aac5},
                                                     {0x5d6d7e, 0xc3ccd5},
                                                     {0x6b8e23, 0xcbdca2}}};

/// Returns the team that owns a token, or -1. With one group of heads, a team is a rank.
int ownerOf(const ShardPlan& plan, std::vector<ShardInterval> ShardTokens::*of, int64_t token) {
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank)
    for (const ShardInterval& interval : plan.ranks[rank].*of)
      if (interval.begin <= token && token < interval.end) return int(rank) / plan.headGroups;
  return -1;
}

/// Returns the teams that own the middle token of each cell along an axis.
std::vector<int> ownersOf(const ShardPlan& plan, std::vector<ShardInterval> ShardTokens::*of, int64_t cells,
                          int64_t step, int64_t tokens) {
  std::vector<int> owners;
  for (int64_t cell = 0; cell < cells; ++cell)
    owners.push_back(ownerOf(plan, of, (cell * step + std::min((cell + 1) * step, tokens)) / 2));
  return owners;
}

} // namespace

Picture shardPicture(const ShardPlan& plan, const BlockMap& map, const std::vector<std::string>& headings) {
  PictureCells cells{.columns = map.columns, .colours = {kPaper}};
  for (const auto& [own, travels] : kRanks) {
    cells.colours.push_back(own);
    cells.colours.push_back(travels);
  }
  const std::vector<int> rows = ownersOf(plan, &ShardTokens::rows, map.rows, map.qStep, plan.qStarts.back());
  const std::vector<int> columns = ownersOf(plan, &ShardTokens::keys, map.columns, map.kvStep, plan.kvStarts.back());
  for (int64_t row = 0; row < map.rows; ++row)
    for (int64_t column = 0; column < map.columns; ++column) {
      const int rank = rows[size_t(row)];
      const bool isEmpty = map.cells[size_t(row * map.columns + column)] == BlockState::Empty || rank < 0;
      const bool travels = columns[size_t(column)] != rank;
      cells.cells.push_back(isEmpty ? 0 : uint8_t(1 + 2 * (size_t(rank) % kRanks.size()) + travels));
    }
  Picture picture;
  CellGrid grid{{0, plan.qStarts.back(), 0, plan.kvStarts.back()}, map.rows, map.columns, map.qStep, map.kvStep};
  const PanelDrawing panel{grid, "", [&](Picture& onto, const Panel& at) {
                             cells.x = at.x;
                             cells.y = at.y;
                             cells.cellWidth = at.cellWidth;
                             cells.cellHeight = at.cellHeight;
                             onto.shapes.emplace_back(cells);
                           }};
  int y = addPanels(picture, addLines(picture, 0, headings) + kGap / 2, {panel});
  const double pairs = std::max(1.0, plan.masks[0].pairs);
  const size_t groups = size_t(plan.headGroups), teams = plan.ranks.size() / groups;
  for (size_t team = 0; team < std::min(teams, kRanks.size()); ++team) {
    y += kLine;
    picture.shapes.emplace_back(PictureRect{kPanelLeft, y - 9, 10, 10, kRanks[team].first});
    picture.shapes.emplace_back(PictureRect{kPanelLeft + 14, y - 9, 10, 10, kRanks[team].second});
    const size_t first = team * groups;
    const ShardWork& work = plan.masks[0].ranks[first];
    const std::string name =
        groups == 1 ? fmt::format("rank {}", first) : fmt::format("ranks {} to {}", first, first + groups - 1);
    picture.add({kPanelLeft + 30, y,
                 fmt::format("{}: {} rows, {:.1f} % of the pairs; of their keys, {} travel", name,
                             plan.teamOf(int(first)).rowCount(), 100 * work.pairs * double(groups) / pairs,
                             work.keysReceived)});
  }
  if (teams > kRanks.size())
    y = addLines(
        picture, y,
        {fmt::format("and {} more {}, in the same colours", teams - kRanks.size(), groups == 1 ? "ranks" : "teams")});
  picture.width += kGap / 2;
  picture.height = y + kGap;
  return picture;
}

} // namespace attnc::cli
