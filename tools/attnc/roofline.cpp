#include "roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace attnc::cli {
namespace {

constexpr double kWidth = 720, kHeight = 480, kLeft = 70, kRight = 30, kTop = 50, kBottom = 60;
// Told apart by the colour-blind, too (Okabe and Ito's set).
constexpr const char* kColours[] = {"#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"};

std::string escaped(std::string_view text) {
  std::string all;
  for (char c : text) {
    if (c == '<') all += "&lt;";
    else if (c == '>') all += "&gt;";
    else if (c == '&') all += "&amp;";
    else if (c == '"') all += "&quot;";
    else all += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return all;
}

/// An axis in whole powers of ten.
struct LogAxis {
  double low, high;        // as powers
  double from, to;         // in the picture
  double at(double value) const { return from + (std::log10(value) - low) / (high - low) * (to - from); }
};

LogAxis axisOver(double least, double most, double from, double to) {
  const double low = std::floor(std::log10(least)), high = std::ceil(std::log10(most));
  return {low, std::max(high, low + 1), from, to};
}

std::string textAt(double x, double y, const char* anchor, std::string_view what, int size = 12,
                   const char* fill = "#222222", const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" text-anchor=\"{}\" fill=\"{}\"{}>{}</text>\n", x, y,
                     size, anchor, fill, more, escaped(what));
}

std::string lineFrom(double x0, double y0, double x1, double y1, const char* style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x0, y0, x1, y1, style);
}

std::string grid(const LogAxis& x, const LogAxis& y) {
  std::string svg;
  constexpr const char* kGrid = "stroke=\"#dddddd\"";
  for (double power = x.low; power <= x.high; ++power) {
    const double at = x.at(std::pow(10, power));
    svg += lineFrom(at, y.from, at, y.to, kGrid) + textAt(at, y.from + 18, "middle", fmt::format("{:g}", std::pow(10, power)));
  }
  for (double power = y.low; power <= y.high; ++power) {
    const double at = y.at(std::pow(10, power));
    svg += lineFrom(x.from, at, x.to, at, kGrid) +
           textAt(x.from - 8, at + 4, "end", fmt::format("{:g}", std::pow(10, power - 12)));
  }
  return svg;
}

} // namespace

double attainable(const Roofline& roofline, double flopsPerByte) {
  const double byMemory = flopsPerByte * roofline.bytes;
  return roofline.flops > 0 ? std::min(byMemory, roofline.flops) : byMemory;
}

std::string rooflineSvg(const Roofline& roofline) {
  const double ridge = roofline.flops > 0 ? roofline.flops / roofline.bytes : 1;
  double leastX = ridge / 10, mostX = ridge * 10, leastY = 1e300, mostY = 0;
  for (const RooflinePoint& point : roofline.points) {
    leastX = std::min(leastX, point.flopsPerByte), mostX = std::max(mostX, point.flopsPerByte);
    leastY = std::min(leastY, point.flops), mostY = std::max(mostY, point.flops);
  }
  const LogAxis x = axisOver(leastX, mostX, kLeft, kWidth - kRight);
  const double left = std::pow(10, x.low), right = std::pow(10, x.high);
  const LogAxis y = axisOver(std::min(leastY, attainable(roofline, left)), std::max(mostY, attainable(roofline, right)),
                             kHeight - kBottom, kTop);
  std::string svg = fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
                                "height=\"{1}\" font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" "
                                "fill=\"white\"/>\n",
                                kWidth, kHeight);
  svg += textAt(kWidth / 2, 26, "middle", roofline.title, 14);
  svg += grid(x, y);
  svg += textAt((kLeft + kWidth - kRight) / 2, kHeight - 14, "middle", "FLOP / byte of memory");
  svg += textAt(18, (kTop + kHeight - kBottom) / 2, "middle", "TFLOP/s", 12, "#222222",
                fmt::format(" transform=\"rotate(-90 18 {:.1f})\"", (kTop + kHeight - kBottom) / 2).c_str());
  constexpr const char* kRoof = "stroke=\"#222222\" stroke-width=\"2\"";
  const double knee = std::clamp(ridge, left, right);
  svg += lineFrom(x.at(left), y.at(attainable(roofline, left)), x.at(roofline.flops > 0 ? knee : right),
                  y.at(attainable(roofline, roofline.flops > 0 ? knee : right)), kRoof);
  const double middle = std::sqrt(left * (roofline.flops > 0 ? knee : right));
  svg += textAt(x.at(middle) - 10, y.at(attainable(roofline, middle)) - 6, "end", fmt::format("{:.0f} GB/s", roofline.bytes * 1e-9));
  if (roofline.flops > 0) {
    svg += lineFrom(x.at(knee), y.at(roofline.flops), x.at(right), y.at(roofline.flops), kRoof);
    svg += textAt(x.at(right) - 4, y.at(roofline.flops) - 8, "end", fmt::format("{:.0f} TFLOP/s", roofline.flops * 1e-12));
  }
  for (size_t i = 0; i < roofline.points.size(); ++i) {
    const RooflinePoint& point = roofline.points[i];
    const char* colour = kColours[i % std::size(kColours)];
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"{}\"/>\n", x.at(point.flopsPerByte), y.at(point.flops), colour);
    // The legend stands below the roof, where hardly any kernel does.
    const double line = y.from - 14 - 18 * double(roofline.points.size() - 1 - i);
    svg += textAt(x.to - 10, line, "end", fmt::format("{}: {:.1f} TFLOP/s", point.name, point.flops * 1e-12), 12, colour);
  }
  return svg + "</svg>\n";
}

} // namespace attnc::cli
