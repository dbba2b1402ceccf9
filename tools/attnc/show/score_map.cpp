#include "show/score_map.h"

#include "support/ceil_div.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attnc::cli {

ScoreMap scoreMapOf(const MaskReader& reader, int64_t b, int64_t h, const MaskRegion& region, const CellLimits& limits,
                    float score, Mapped mapped) {
  const int64_t rows = region.qEnd - region.qBegin, columns = region.kvEnd - region.kvBegin;
  int64_t step = 1;
  while (rows > step * limits.rows || columns > step * limits.columns) step *= 2;
  ScoreMap map;
  map.region = region;
  map.qStep = map.kvStep = step;
  map.rows = ceilDiv(rows, step);
  map.columns = ceilDiv(columns, step);
  for (int64_t row = 0; row < map.rows; ++row)
    for (int64_t column = 0; column < map.columns; ++column) {
      const int64_t q = std::min(region.qBegin + row * step + step / 2, region.qEnd - 1);
      const int64_t kv = std::min(region.kvBegin + column * step + step / 2, region.kvEnd - 1);
      const float after = mapped == Mapped::Sinks     ? reader.sinkOf(b, h, q)
                          : mapped == Mapped::Weights ? reader.weightOf(score, b, h, q, kv)
                                                      : reader.scoreOf(score, b, h, q, kv);
      map.cells.push_back(reader.isLive(b, h, q, kv) ? after : std::numeric_limits<float>::quiet_NaN());
    }
  return map;
}

ScoreScale::ScoreScale(const std::vector<LikeScores>& groups, float score) : unchanged(score) {
  const auto forEach = [&](auto visit) {
    for (const LikeScores& group : groups)
      for (float after : group.map.cells)
        if (std::isfinite(after)) visit(after);
  };
  forEach([&](float after) { reach = std::max(reach, std::abs(after - unchanged)); });
  forEach([&](float after) {
    least = std::min(least, levelOf(after));
    most = std::max(most, levelOf(after));
  });
}

int ScoreScale::levelOf(float after) const {
  const double change = after - unchanged;
  if (change == 0 || std::isnan(change)) return 0;
  if (std::isinf(change)) return change > 0 ? kLevels : -kLevels;
  return reach > 0 ? int(std::lround(kLevels * std::asinh(change) / std::asinh(reach))) : 0;
}

double ScoreScale::scoreAt(int level) const {
  return unchanged + std::sinh(std::asinh(reach) * double(level) / kLevels);
}

std::vector<std::pair<double, double>> scoreCurve(const MaskReader& reader, double range, int points) {
  std::vector<std::pair<double, double>> curve;
  for (int i = 0; i < points; ++i) {
    const double score = range * (2.0 * i / (points - 1) - 1);
    curve.emplace_back(score, reader.scoreOf(float(score), 0, 0, 0, 0));
  }
  return curve;
}

} // namespace attnc::cli
