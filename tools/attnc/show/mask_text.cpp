#include "show/mask_text.h"

#include "terminal.h"
#include "text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace attnc::cli {
namespace {

constexpr int kLabelWidth = 9; // width of the q_idx labels, left of the frame

/// Two characters for each cell, which together are about square.
constexpr const char* kGlyphs[] = {"  ", "░░", "▒▒", "▓▓", "██", "··", "▓▓"};
static_assert(std::size(kGlyphs) == size_t(Cell::Live) + 1);
const char* glyphsOf(Cell cell) { return kGlyphs[size_t(cell)]; }

/// Returns how many cells apart labels stand, so that each fits with a space.
int64_t cellsPerLabel(const CellGrid& grid) {
  const int64_t digits = int64_t(fmt::to_string(grid.region.kvEnd).size());
  int64_t cells = 1;
  while (2 * cells < digits + 2) cells *= 2;
  return std::max<int64_t>(cells, 4);
}

/// Returns two lines: the name of the axis, and its numbers.
std::string columnLabels(const CellGrid& grid) {
  const int64_t every = cellsPerLabel(grid);
  std::string line(size_t(2 * grid.columns), ' ');
  for (int64_t column = 0; column < grid.columns; column += every) {
    const std::string label = fmt::to_string(grid.region.kvBegin + column * grid.kvStep);
    if (size_t(2 * column) + label.size() <= line.size()) line.replace(size_t(2 * column), label.size(), label);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return fmt::format("{:{}}kv_idx →\n{:{}}{}\n", "", kLabelWidth, "", kLabelWidth, line);
}

/// "0-3, 6"
std::string rangesText(const std::set<int64_t>& numbers) {
  std::string text;
  for (auto at = numbers.begin(); at != numbers.end();) {
    const int64_t first = *at;
    int64_t last = first;
    while (++at != numbers.end() && *at == last + 1) last = *at;
    text += (text.empty() ? "" : ", ") + (first == last ? fmt::to_string(first) : fmt::format("{}-{}", first, last));
  }
  return text;
}

/// Says what a cell is if it is not a block.
std::string cellMeaning(const CellMap& map, const BlockMaskShape& shape) {
  if (map.ofElements && map.qStep == 1) return "a cell is a score\n";
  if (map.ofElements) return fmt::format("a cell is {0} x {0} scores\n", map.qStep);
  const int64_t high = map.qStep / shape.qBlock, wide = map.kvStep / shape.kvBlock;
  return high * wide == 1 ? "" : fmt::format("a cell is {} x {} blocks\n", high, wide);
}

} // namespace

CellLimits terminalCells() {
  const int64_t cells = std::clamp<int64_t>((int64_t(terminalColumns()) - kLabelWidth - 2) / 2, 4, 64);
  return {.rows = std::min<int64_t>(cells, 48), .columns = cells, .elementsPerCell = 16};
}

std::string framedText(const CellGrid& grid, const std::function<std::string(size_t)>& glyphs) {
  std::string edge;
  for (int64_t column = 0; column < grid.columns; ++column) edge += "──";
  std::string text = columnLabels(grid) + fmt::format("{:>{}}┌{}┐\n", "q_idx ↓", kLabelWidth - 1, edge);
  const int64_t every = grid.rows <= 16 ? 2 : 4;
  for (int64_t row = 0; row < grid.rows; ++row) {
    const std::string label = row % every == 0 ? fmt::to_string(grid.region.qBegin + row * grid.qStep) : "";
    text += fmt::format("{:>{}}│", label, kLabelWidth - 1);
    for (int64_t column = 0; column < grid.columns; ++column) text += glyphs(size_t(row * grid.columns + column));
    text += "│\n";
  }
  return text + fmt::format("{:>{}}{}┘\n", "└", kLabelWidth, edge);
}

std::string headsText(const Heads& all, const BlockMaskShape& shape) {
  std::map<int64_t, std::set<int64_t>> headsOf; // by batch entry
  for (const auto& [b, h] : all) headsOf[b].insert(h);
  std::map<std::string, std::set<int64_t>> entriesOf; // by their heads
  for (const auto& [b, heads] : headsOf) entriesOf[rangesText(heads)].insert(b);
  std::string text;
  for (const auto& [heads, entries] : entriesOf) {
    std::string part;
    if (shape.batch > 1) part = fmt::format("batch {}", rangesText(entries));
    if (shape.heads > 1) part += fmt::format("{}head {}", part.empty() ? "" : ", ", heads);
    text += (text.empty() ? "" : "; ") + part;
  }
  return text;
}

std::string moreText(size_t count) { return fmt::format("{} more look different: --batch and --head choose", count); }

std::string mapText(const std::vector<LikeHeads>& groups, const BlockMaskShape& shape) {
  return groupsText(groups, shape, glyphsOf) + cellMeaning(groups.front().map, shape);
}

std::string sharesText(const CellMap& map, const BlockCounts& counts) {
  const auto line = [&](Cell cell, const char* name, int64_t count, const char* meaning) {
    return fmt::format("{} {:8}{:>12}  {:>5.1f} %  {}\n", glyphsOf(cell), name, count,
                       counts.all ? 100 * double(count) / double(counts.all) : 0, meaning);
  };
  const int64_t partial = counts.live - counts.full;
  std::string text = line(Cell::Full, "full", counts.full, "computed without mask_mod");
  if (!map.ofElements)
    text += line(Cell::Partial, "partial", partial, "computed, and mask_mod with each score");
  else if (map.qStep == 1)
    text += line(Cell::Live, "partial", partial, "by mask_mod: ▓▓ lives, ·· is masked");
  else
    text += line(Cell::Live, "partial", partial, "by mask_mod: ▓▓ all live, ░░ some, ·· none");
  text += line(Cell::Empty, "empty", counts.all - counts.live, "skipped");
  const auto has = [&](Cell cell) { return std::find(map.cells.begin(), map.cells.end(), cell) != map.cells.end(); };
  if (has(Cell::Most) || has(Cell::Some))
    text += "▓▓ several blocks, at least half of them full; ▒▒ some of them full\n";
  return text;
}

std::string scopeText(const BlockMaskShape& shape, const ProblemShape& problem) {
  const bool allEntries = shape.batch < problem.batch, allHeads = shape.heads < problem.qHeads;
  if (allEntries && allHeads) return "the same in all batch entries and heads";
  if (allEntries) return "the same in all batch entries";
  return allHeads ? "the same in all heads" : "";
}

} // namespace attnc::cli
