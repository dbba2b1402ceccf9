#include "problem/grid_text.h"

#include "text.h"

#include "support/try.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace attnc::cli {
namespace {

/// "128 x WIDTH behind 77 tokens"
std::string gridText(GridInfo grid) {
  if (grid.takesRest) grid.extents[0] = "(" + grid.extents[0] + ")";
  const std::string text = fmt::format("{}", fmt::join(grid.extents, " x "));
  return grid.before == "0" ? text : fmt::format("{} behind {} tokens", text, grid.before);
}

std::string rangeText(const GridAxisRange& range) {
  std::string text = range.begin.empty() ? "all" : fmt::format("{} to before {}", range.begin, range.end);
  if (!range.step.empty()) text += fmt::format(", those that are {} modulo {}", range.phase, range.step);
  return text;
}

std::string boxText(const ModGrids& grids) {
  if (!grids.box) return fmt::format("box         {}\n", grids.whyNoBox);
  std::string text = grids.box->isMask ? "box         mask_mod is a box of keys per query\n"
                                       : "box         mask_mod lies in a box of keys per query, and asks for more\n";
  for (const GridAxisRange& range : grids.box->axes)
    text += fmt::format("            k{}: {}\n", range.axis, rangeText(range));
  return text + (grids.box->offGrid.empty() ? "" : fmt::format("            {}\n", grids.box->offGrid));
}

} // namespace

Expected<ProblemShape> onDeclaredGrids(const Mod& mod, const ProblemOptions& options, ProblemShape shape) {
  if (!mod.declaresGrids()) return shape;
  ATTNC_TRY_AS(grids, gridsOf(mod));
  std::map<std::string, std::string> given = assignments("--set", options.sets);
  given.merge(assignments("--pin", options.kernel.pins));
  const auto numberOf = [&](const std::string& extent) -> std::optional<int64_t> {
    const auto text = given.find(extent);
    int64_t value = 0;
    if (!parseInteger(text == given.end() ? extent : text->second, value) || value < 0 || value > kMaxExtent)
      return std::nullopt;
    return value;
  };
  for (const GridInfo& grid : grids->grids) {
    std::optional<int64_t> tokens = 1;
    for (const std::string& extent : grid.extents) {
      const std::optional<int64_t> number = numberOf(extent);
      tokens = tokens && number ? std::optional(std::min(*tokens * *number, kMaxExtent)) : std::nullopt;
    }
    const std::optional<int64_t> before = numberOf(grid.before);
    if (!tokens || !before) continue;
    const int64_t length = std::min(*tokens + *before, kMaxExtent);
    if (grid.ofQueries) shape.qLen = length;
    if (grid.ofKeys) shape.kvLen = length;
  }
  return shape;
}

std::string gridsText(const ModGrids& grids) {
  if (!grids.divisor.empty())
    return fmt::format(
        "grid        none is found, though positions are taken apart by // and % {}: of one number,\n"
        "            WIDTH: int, with image = grid(HEIGHT, WIDTH), y, x = image.coords(q_idx), attnc sees boxes\n",
        grids.divisor);
  std::string text;
  for (const GridInfo& grid : grids.grids) {
    const char* whose = grid.ofQueries && grid.ofKeys ? ": queries and keys"
                        : grid.ofQueries              ? ": queries"
                        : grid.ofKeys                 ? ": keys"
                                                      : "";
    text += fmt::format("{:12}{}{}\n", text.empty() ? "grid" : "", gridText(grid), whose);
  }
  if (!grids.served.empty()) text += fmt::format("            {}\n", grids.served);
  return text.empty() ? text : text + boxText(grids);
}

} // namespace attnc::cli
