#include "show/score_text.h"

#include "show/mask_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace attnc::cli {
namespace {

/// Shades of changes down and up, from small to large. Each has kLevelsPerShade levels.
constexpr std::array<const char*, 4> kDown{"░░", "▒▒", "▓▓", "██"}, kUp{"..", "oo", "OO", "@@"};
constexpr int kLevelsPerShade = ScoreScale::kLevels / int(kDown.size());
constexpr const char* kSame = "··";

const char* shadeOf(int level) {
  if (level == 0) return kSame;
  return (level < 0 ? kDown : kUp)[size_t(std::abs(level) - 1) / kLevelsPerShade];
}

/// Returns a line for each shade that occurs, with its range of scores.
std::string scaleText(const std::vector<LikeScores>& groups, const ScoreScale& scale) {
  struct Range {
    float low = INFINITY, high = -INFINITY;
  };
  std::vector<std::pair<std::string, Range>> shades;
  for (int shade = int(kDown.size()) - 1; shade >= 0; --shade) shades.push_back({kDown[size_t(shade)], {}});
  shades.push_back({kSame, {}});
  for (const char* shade : kUp) shades.push_back({shade, {}});
  bool hasMasked = false;
  for (const LikeScores& group : groups)
    for (float score : group.map.cells) {
      hasMasked |= std::isnan(score);
      if (std::isnan(score)) continue;
      const int level = scale.levelOf(score), sign = (level > 0) - (level < 0);
      const int shade = int(kDown.size()) + sign * (level ? 1 + (std::abs(level) - 1) / kLevelsPerShade : 0);
      Range& range = shades[size_t(shade)].second;
      range = {std::min(range.low, score), std::max(range.high, score)};
    }
  std::string text;
  for (const auto& [glyphs, range] : shades) {
    if (range.low > range.high) continue;
    const std::string low = numberText(range.low), high = numberText(range.high);
    text += fmt::format("{} {}{}\n", glyphs, low, low == high ? "" : " to " + high);
  }
  return text + (hasMasked ? "   blank: masked\n" : "");
}

} // namespace

std::string numberText(double number) { return fmt::format("{:.3g}", number == 0 ? 0 : number); }

std::string scoreText(const std::vector<LikeScores>& groups, const ScoreScale& scale, const BlockMaskShape& shape) {
  std::string text = groupsText(groups, groups.size() > 1 ? shape : BlockMaskShape(),
                                [&](float score) { return std::isnan(score) ? "  " : shadeOf(scale.levelOf(score)); });
  if (const int64_t step = groups.front().map.qStep; step > 1)
    text += fmt::format("a cell shows one of {0} x {0} scores, in its middle\n", step);
  return text + scaleText(groups, scale);
}

std::string curveText(const std::vector<std::pair<double, double>>& curve) {
  constexpr int kRows = 21, kColumns = 61, kLabel = 9;
  double range = curve.back().first;
  for (const auto& [score, after] : curve)
    if (std::isfinite(after)) range = std::max(range, std::abs(after));
  const auto place = [&](double value, int cells) { return int(std::lround((value / range + 1) / 2 * (cells - 1))); };
  std::vector<std::vector<const char*>> cells(kRows, std::vector<const char*>(kColumns, " "));
  const auto mark = [&](double x, double y, const char* glyph) {
    cells[size_t(kRows - 1 - place(y, kRows))][size_t(place(x, kColumns))] = glyph;
  };
  for (const auto& [score, after] : curve) mark(score, score, "·");
  for (const auto& [score, after] : curve)
    if (std::isfinite(after)) mark(score, after, "█");
  std::string text = "score after score_mod\n";
  for (int row = 0; row < kRows; ++row) {
    const std::string label = row % 5 ? "" : numberText(range * (1 - 2.0 * row / (kRows - 1)));
    text += fmt::format("{:>{}} │", label, kLabel - 1);
    for (const char* glyph : cells[size_t(row)]) text += glyph;
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  std::string edge, labels(size_t(kLabel + 1 + kColumns + kLabel), ' ');
  for (int column = 0; column < kColumns; ++column) edge += "─";
  for (int i = 0; i <= 4; ++i) {
    const std::string label = numberText(range * (0.5 * i - 1));
    labels.replace(size_t(kLabel + 1 + i * (kColumns - 1) / 4) - label.size() / 2, label.size(), label);
  }
  labels.erase(labels.find_last_not_of(' ') + 1);
  return text + fmt::format("{:>{}}{}\n{} score\n██ score_mod, ·· unchanged\n", "└", kLabel + 1, edge, labels);
}

} // namespace attnc::cli
