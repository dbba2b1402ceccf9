#include "show/score_picture.h"

#include "show/mask_text.h"
#include "show/panel.h"
#include "show/score_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace attnc::cli {
namespace {

constexpr int kLevelWidth = 14, kBarHeight = 12; // of the scale
constexpr int kCurveSide = 400;
constexpr int64_t kScoreCells = 128; // of a panel, along each side
constexpr Rgb kGridLine = 0xdddddd;

/// Colours that the colour-blind can also tell apart: of the largest change down, no change, the largest change up.
struct Diverging {
  Rgb down, none, up;
};
constexpr Diverging kLight{0x08519c, 0xf2f2f2, 0xb34700}, kDarkColours{0x79c0ff, 0x22272e, 0xffa657};

Rgb between(Rgb from, Rgb to, int part, int whole) {
  Rgb colour = 0;
  for (int shift : {16, 8, 0}) {
    const int a = int(from >> shift & 0xff), b = int(to >> shift & 0xff);
    colour |= Rgb(a + (b - a) * part / whole) << shift;
  }
  return colour;
}

Rgb levelColour(const Diverging& colours, int level) {
  return between(colours.none, level < 0 ? colours.down : colours.up, std::abs(level), ScoreScale::kLevels);
}

/// Returns the colours of all levels, after one that stands for masked scores and is not drawn.
std::vector<Rgb> levelColours() {
  std::vector<Rgb> colours{kPaper};
  for (int level = -ScoreScale::kLevels; level <= ScoreScale::kLevels; ++level)
    colours.push_back(levelColour(kLight, level));
  return colours;
}

void addScoreCells(Picture& picture, const Panel& panel, const ScoreMap& map, const ScoreScale& scale) {
  PictureCells cells{panel.x, panel.y, panel.cellWidth, panel.cellHeight, map.columns, {}, levelColours()};
  bool hasMasked = false;
  for (float score : map.cells) {
    hasMasked |= std::isnan(score);
    cells.cells.push_back(std::isnan(score) ? 0 : uint8_t(scale.levelOf(score) + ScoreScale::kLevels + 1));
  }
  if (hasMasked) picture.shapes.emplace_back(PictureHatch{panel.x, panel.y, panel.width, panel.height});
  picture.shapes.emplace_back(std::move(cells));
}

/// Draws the levels that occur with their scores below. Returns where it ends.
int addScale(Picture& picture, int y, const ScoreScale& scale) {
  int lastEnd = INT32_MIN;
  const auto placeOf = [&](int level) { return kPanelLeft + (level - scale.lowest()) * kLevelWidth; };
  for (int level = scale.lowest(); level <= scale.highest(); ++level)
    picture.shapes.emplace_back(PictureRect{placeOf(level), y, kLevelWidth, kBarHeight, levelColour(kLight, level)});
  addFrame(picture, kPanelLeft, y, placeOf(scale.highest() + 1) - kPanelLeft, kBarHeight, kFrame);
  for (int level = scale.lowest(); level <= scale.highest(); ++level) {
    const bool isMark = level == scale.lowest() || level == scale.highest() || level == 0 || level % 4 == 0;
    PictureText words{placeOf(level) + kLevelWidth / 2, y + kBarHeight + kLine, numberText(scale.scoreAt(level)),
                      PictureText::Anchor::Middle};
    if (!isMark || words.x - words.width() / 2 < lastEnd + 6) continue;
    picture.shapes.emplace_back(PictureRect{words.x, y + kBarHeight, 1, 4, kFrame});
    lastEnd = words.x + words.width() / 2;
    picture.add(std::move(words));
  }
  return y + kBarHeight + kLine;
}

/// Returns a round distance of ticks, four to eight on each side of 0.
double tickStep(double range) {
  const double power = std::pow(10, std::floor(std::log10(range / 4)));
  for (double factor : {5.0, 2.0})
    if (power * factor <= range / 4) return power * factor;
  return power;
}

} // namespace

CellLimits scorePictureCells() { return {.rows = kScoreCells, .columns = kScoreCells, .elementsPerCell = 1}; }

Picture scorePicture(const std::vector<LikeScores>& groups, const ScoreScale& scale, const BlockMaskShape& shape,
                     const std::vector<std::string>& headings, const std::string& scaleTitle) {
  Picture picture;
  for (int level = -ScoreScale::kLevels; level <= ScoreScale::kLevels; ++level)
    picture.dark[levelColour(kLight, level)] = levelColour(kDarkColours, level);
  std::vector<PanelDrawing> panels;
  bool hasMasked = false;
  for (size_t i = 0; i < std::min(groups.size(), kMostPanels); ++i) {
    const ScoreMap& map = groups[i].map;
    for (float score : map.cells) hasMasked |= std::isnan(score);
    panels.push_back({map, groups.size() > 1 ? headsText(groups[i].heads, shape) : "",
                      [&](Picture& onto, const Panel& panel) { addScoreCells(onto, panel, map, scale); }});
  }
  int y = addPanels(picture, addLines(picture, 0, headings) + kGap / 2, panels);
  if (groups.size() > kMostPanels) y = addLines(picture, y, {moreText(groups.size() - kMostPanels)});
  picture.add({kPanelLeft, y += kLine, scaleTitle});
  y = addScale(picture, y + kLine / 2, scale);
  if (hasMasked) {
    y += kLine + 4;
    picture.shapes.emplace_back(PictureHatch{kPanelLeft, y - 9, 10, 10});
    addFrame(picture, kPanelLeft, y - 9, 10, 10, kFrame);
    picture.add({kPanelLeft + 16, y, "masked"});
  }
  picture.width += kGap / 2;
  picture.height = y + kGap;
  return picture;
}

Picture curvePicture(const std::vector<std::pair<double, double>>& curve, const std::vector<std::string>& headings) {
  using Anchor = PictureText::Anchor;
  constexpr int kEighths = 8;
  Picture picture;
  const int left = kPanelLeft, top = addLines(picture, 0, headings) + 2 * kGap;
  double range = curve.back().first;
  for (const auto& [score, after] : curve)
    if (std::isfinite(after)) range = std::max(range, std::abs(after));
  const auto eighths = [&](double value) { return int(std::lround(kCurveSide * kEighths * (value / range + 1) / 2)); };
  const auto x = [&](double value) { return left * kEighths + eighths(value); };
  const auto y = [&](double value) { return (top + kCurveSide) * kEighths - eighths(value); };
  const double step = tickStep(range);
  for (int i = -int(range / step); i <= int(range / step); ++i) {
    const int across = x(i * step) / kEighths, down = y(i * step) / kEighths;
    const Rgb colour = i == 0 ? kFrame : kGridLine;
    picture.shapes.emplace_back(PictureRect{across, top, 1, kCurveSide, colour});
    picture.shapes.emplace_back(PictureRect{left, down, kCurveSide, 1, colour});
    picture.add({across, top + kCurveSide + kLine, numberText(i * step), Anchor::Middle});
    picture.add({left - 6, down + PictureText::kCharHeight / 2, numberText(i * step), Anchor::Right});
  }
  addFrame(picture, left, top, kCurveSide, kCurveSide, kFrame);
  PictureLine line{{}, 0xd55e00},
      same{{{x(curve.front().first), y(curve.front().first)}, {x(curve.back().first), y(curve.back().first)}},
           kFrame,
           true};
  for (const auto& [score, after] : curve)
    if (std::isfinite(after)) line.points.emplace_back(x(score), y(after));
  picture.shapes.emplace_back(std::move(same));
  picture.shapes.emplace_back(std::move(line));
  int below = top + kCurveSide + 2 * kLine + 4;
  picture.add({left + kCurveSide / 2, below, "score", Anchor::Middle, kFaintInk});
  picture.add({left, top - 8, "score after score_mod; dashed: unchanged", Anchor::Left, kFaintInk});
  picture.width = std::max(picture.width, left + kCurveSide + 2 * kGap);
  picture.height = below + kGap;
  return picture;
}

} // namespace attnc::cli
