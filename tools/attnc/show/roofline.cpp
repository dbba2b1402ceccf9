#include "show/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace attnc::cli {
namespace {

/// The part of the picture inside the axes.
struct PlotArea {
  static constexpr int kLeft = 56, kRight = 620, kTop = 44, kBottom = 384;
  static constexpr int kWidth = kRight + 28, kHeight = kBottom + 48;
};
constexpr int kLegendLine = 14;
constexpr int kMark = 5; // side of a kernel's square
constexpr Rgb kRoofGrid = 0xdddddd;
// Colours that the colour-blind can also tell apart (Okabe and Ito's set).
constexpr Rgb kPointColours[] = {0xd55e00, 0x0072b2, 0x009e73, 0xcc79a7, 0xe69f00, 0x56b4e9};

/// A logarithmic axis.
struct LogAxis {
  double low, high; ///< exponents of ten
  int from, to;     ///< in units of the picture
  int at(double value) const { return from + int(std::lround((std::log10(value) - low) / (high - low) * (to - from))); }
  double valueAt(int place) const { return std::pow(10, low + (high - low) * double(place - from) / (to - from)); }
  /// Returns 1, 2 and 5 times powers of ten; only powers if the axis is long.
  std::vector<double> ticks() const {
    std::vector<double> values;
    for (double power = std::floor(low); power <= high; ++power)
      for (double factor : {1, 2, 5}) {
        const double value = factor * std::pow(10, power), place = std::log10(value);
        if (place > low - 1e-9 && place < high + 1e-9 && (factor == 1 || high - low < 2.5)) values.push_back(value);
      }
    return values;
  }
};

/// Returns an axis that ends at 1, 2 or 5 times a power of ten on both sides.
LogAxis axisOver(double least, double most, int from, int to) {
  const auto rounded = [](double value, bool up) {
    const double power = std::pow(10, std::floor(std::log10(value)));
    double best = power;
    for (double factor : {2.0, 5.0, 10.0})
      if (up ? best < value : factor * power <= value) best = factor * power;
    return std::log10(best);
  };
  const double low = rounded(least, false), high = rounded(most, true);
  return {low, std::max(high, low + 1), from, to};
}

void addText(Picture& picture, int x, int y, std::string text, PictureText::Anchor anchor, Rgb colour = kInk) {
  picture.shapes.emplace_back(PictureText{x, y, std::move(text), anchor, colour});
}

void addGrid(Picture& picture, const LogAxis& x, const LogAxis& y) {
  using Anchor = PictureText::Anchor;
  for (double value : x.ticks()) {
    const int at = x.at(value);
    picture.shapes.emplace_back(PictureRect{at, y.to, 1, y.from - y.to + 1, kRoofGrid});
    addText(picture, at, y.from + 16, fmt::format("{:g}", value), Anchor::Middle);
  }
  for (double value : y.ticks()) {
    const int at = y.at(value);
    picture.shapes.emplace_back(PictureRect{x.from, at, x.to - x.from + 1, 1, kRoofGrid});
    addText(picture, x.from - 6, at + 3, fmt::format("{:g}", value * 1e-12), Anchor::Right);
  }
  addText(picture, (x.from + x.to) / 2, y.from + 36, "FLOP / byte of memory", Anchor::Middle);
  addText(picture, x.from, y.to - 8, "TFLOP/s", Anchor::Right);
}

/// Draws the roof: for each position along the axis a column below it.
void addRoof(Picture& picture, const Roofline& roofline, const LogAxis& x, const LogAxis& y) {
  for (int place = x.from; place < x.to; ++place) {
    const int here = y.at(attainable(roofline, x.valueAt(place))),
              next = y.at(attainable(roofline, x.valueAt(place + 1)));
    picture.shapes.emplace_back(PictureRect{place, next - 1, 1, here - next + 2, kInk});
  }
}

} // namespace

double attainable(const Roofline& roofline, double flopsPerByte) {
  const double byMemory = flopsPerByte * roofline.bytes;
  return roofline.flops > 0 ? std::min(byMemory, roofline.flops) : byMemory;
}

Picture rooflinePicture(const Roofline& roofline) {
  using Anchor = PictureText::Anchor;
  const double ridge = roofline.flops > 0 ? roofline.flops / roofline.bytes : 1;
  double leastX = ridge / 4, mostX = ridge * 4, leastY = roofline.bytes * leastX, mostY = 0;
  for (const RooflinePoint& point : roofline.points) {
    leastX = std::min(leastX, point.flopsPerByte), mostX = std::max(mostX, point.flopsPerByte);
    leastY = std::min(leastY, point.flops), mostY = std::max(mostY, point.flops);
  }
  const LogAxis x = axisOver(leastX, mostX, PlotArea::kLeft, PlotArea::kRight);
  leastY = std::min(leastY, attainable(roofline, x.valueAt(x.from)));
  mostY = std::max(mostY, attainable(roofline, x.valueAt(x.to)));
  const LogAxis y = axisOver(leastY, mostY, PlotArea::kBottom, PlotArea::kTop);
  Picture picture{PlotArea::kWidth, PlotArea::kHeight, {}};
  addText(picture, PlotArea::kWidth / 2, 18, roofline.title, Anchor::Middle);
  addGrid(picture, x, y);
  addRoof(picture, roofline, x, y);
  const int slope = (x.from + (roofline.flops > 0 ? std::clamp(x.at(ridge), x.from, x.to) : x.to)) / 2;
  addText(picture, slope - 8, y.at(attainable(roofline, x.valueAt(slope))) - 8,
          fmt::format("{:.0f} GB/s", roofline.bytes * 1e-9), Anchor::Right);
  if (roofline.flops > 0) {
    addText(picture, x.to - 4, y.at(roofline.flops) - 6, fmt::format("{:.0f} TFLOP/s", roofline.flops * 1e-12),
            Anchor::Right);
    picture.shapes.emplace_back(
        PictureRect{x.at(ridge), y.at(roofline.flops), 1, y.from - y.at(roofline.flops), kFrame});
    addText(picture, x.at(ridge) - 4, y.at(roofline.flops) - 6, fmt::format("ridge at {:.0f} FLOP/byte", ridge),
            Anchor::Right, kFaintInk);
  }
  // The legend stands below the roof, where hardly any kernel lies.
  int line = y.from - 8 - kLegendLine * (int(roofline.points.size()) - 1);
  std::vector<std::pair<int, int>> shares; // where they stand
  for (size_t i = 0; i < roofline.points.size(); ++i, line += kLegendLine) {
    const RooflinePoint& point = roofline.points[i];
    const Rgb colour = kPointColours[i % std::size(kPointColours)];
    const int across = x.at(point.flopsPerByte), up = y.at(point.flops);
    const double share = 100 * point.flops / attainable(roofline, point.flopsPerByte);
    picture.shapes.emplace_back(PictureRect{across - kMark / 2, up - kMark / 2, kMark, kMark, colour});
    const bool isAtEdge = across + 40 > x.to;
    int below = up + 3; // shifted down to where no other share stands
    for (const auto& [otherX, otherY] : shares)
      if (std::abs(otherX - across) < 60 && std::abs(otherY - below) < 11) below = otherY + 11;
    shares.emplace_back(across, below);
    addText(picture, isAtEdge ? across - kMark - 2 : across + kMark + 2, below, fmt::format("{:.0f} %", share),
            isAtEdge ? Anchor::Right : Anchor::Left, colour);
    addText(picture, x.to - 8, line,
            fmt::format("{}: {:.1f} TFLOP/s, {:.0f} % of the roof", point.name, point.flops * 1e-12, share),
            Anchor::Right, colour);
  }
  return picture;
}

} // namespace attnc::cli
