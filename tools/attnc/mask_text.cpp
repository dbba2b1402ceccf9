#include "mask_text.h"

#include "terminal.h"
#include "text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace attnc::cli {
namespace {

constexpr int kLabelWidth = 9; // width of the q_idx labels, left of the frame

/// Returns two characters, which together are about square.
const char* glyphs(Cell cell) {
  switch (cell) {
  case Cell::Empty: return "  ";
  case Cell::Partial: return "░░";
  case Cell::Mixed: return "▒▒";
  case Cell::Full:
  case Cell::Live: return "██";
  case Cell::Masked: return "··";
  }
  return "";
}

/// Returns how many cells apart labels stand, so that each fits with a space.
int64_t cellsPerLabel(const CellMap& map) {
  const int64_t digits = int64_t(fmt::to_string(map.region.kvEnd).size());
  int64_t cells = 1;
  while (2 * cells < digits + 2) cells *= 2;
  return std::max<int64_t>(cells, 4);
}

std::string columnLabels(const CellMap& map) {
  const int64_t every = cellsPerLabel(map);
  std::string line(size_t(2 * map.columns), ' ');
  for (int64_t column = 0; column < map.columns; column += every) {
    const std::string label = fmt::to_string(map.region.kvBegin + column * map.kvStep);
    if (size_t(2 * column) + label.size() <= line.size()) line.replace(size_t(2 * column), label.size(), label);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return fmt::format("{:>{}} {}\n", "q \\ kv", kLabelWidth - 1, line);
}

std::string cellsText(const CellMap& map) {
  std::string edge;
  for (int64_t column = 0; column < map.columns; ++column) edge += "──";
  std::string text = columnLabels(map) + fmt::format("{:>{}}{}┐\n", "┌", kLabelWidth, edge);
  const int64_t every = map.rows <= 16 ? 2 : 4;
  for (int64_t row = 0; row < map.rows; ++row) {
    const std::string label = row % every == 0 ? fmt::to_string(map.region.qBegin + row * map.qStep) : "";
    text += fmt::format("{:>{}}│", label, kLabelWidth - 1);
    for (int64_t column = 0; column < map.columns; ++column)
      text += glyphs(map.cells[size_t(row * map.columns + column)]);
    text += "│\n";
  }
  return text + fmt::format("{:>{}}{}┘\n", "└", kLabelWidth, edge);
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

std::string cellMeaning(const CellMap& map, const BlockMaskShape& shape) {
  if (map.ofElements && map.qStep == 1)
    return "a cell is a score: ██ lives, ·· is masked in a partial block, blank in an empty one\n";
  if (map.ofElements)
    return fmt::format(
        "a cell is {0} x {0} scores: ██ all live, ░░ some live; ·· all masked in a partial block, blank in an "
        "empty one\n",
        map.qStep);
  const int64_t high = map.qStep / shape.qBlock, wide = map.kvStep / shape.kvBlock;
  if (high * wide == 1) return "";
  return fmt::format("a cell is {} x {} blocks: ▒▒ some are full and some are not, ░░ some live and none is full\n",
                     high, wide);
}

} // namespace

CellLimits terminalCells() {
  const int64_t cells = std::clamp<int64_t>((int64_t(terminalColumns()) - kLabelWidth - 2) / 2, 4, 64);
  return {.rows = std::min<int64_t>(cells, 48), .columns = cells, .elementsPerCell = 16};
}

std::string headsText(const LikeHeads& group, const BlockMaskShape& shape) {
  std::map<int64_t, std::set<int64_t>> headsOf; // by batch entry
  for (const auto& [b, h] : group.heads) headsOf[b].insert(h);
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

std::string mapText(const std::vector<LikeHeads>& groups, const BlockMaskShape& shape) {
  std::string text;
  size_t left = 0;
  for (const LikeHeads& group : groups) {
    if (group.map.cells.empty() && &group != &groups.front()) {
      ++left;
      continue;
    }
    if (std::string heading = headsText(group, shape); !heading.empty()) text += heading + "\n";
    text += cellsText(group.map);
  }
  if (left) text += fmt::format("{} more look different: --batch and --head choose\n", left);
  return text + cellMeaning(groups.front().map, shape);
}

std::string sharesText(const BlockMask& mask) {
  const BlockMaskShape& shape = mask.shape();
  const int64_t all = shape.batch * shape.heads * shape.qBlocks() * shape.kvBlocks();
  const int64_t full = mask.fullBlocks(), live = mask.liveBlocks();
  const auto line = [&](Cell cell, const char* name, int64_t count, const char* meaning) {
    return fmt::format("{} {:8}{:>12}  {:>5.1f} %  {}\n", glyphs(cell), name, count,
                       all ? 100 * double(count) / double(all) : 0, meaning);
  };
  return line(Cell::Full, "full", full, "computed") +
         line(Cell::Partial, "partial", live - full, "computed, and mask_mod with each score") +
         line(Cell::Empty, "empty", all - live, "skipped");
}

std::string scopeText(const BlockMaskShape& shape, const ProblemShape& problem) {
  const bool allEntries = shape.batch < problem.batch, allHeads = shape.heads < problem.qHeads;
  if (allEntries && allHeads) return "the same in all batch entries and heads";
  if (allEntries) return "the same in all batch entries";
  return allHeads ? "the same in all heads" : "";
}

} // namespace attnc::cli
