#include "show/score_map.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <unordered_map>

namespace attnc::cli {
namespace {

ScoreMap scoreMapOf(const MaskReader& reader, int64_t b, int64_t h, const MaskRegion& region, const CellLimits& limits,
                    float score) {
  const int64_t rows = region.qEnd - region.qBegin, columns = region.kvEnd - region.kvBegin;
  int64_t step = 1;
  while (rows > step * limits.rows || columns > step * limits.columns) step *= 2;
  ScoreMap map;
  map.region = region;
  map.qStep = map.kvStep = step;
  map.rows = (rows + step - 1) / step;
  map.columns = (columns + step - 1) / step;
  for (int64_t row = 0; row < map.rows; ++row)
    for (int64_t column = 0; column < map.columns; ++column) {
      const int64_t q = std::min(region.qBegin + row * step + step / 2, region.qEnd - 1);
      const int64_t kv = std::min(region.kvBegin + column * step + step / 2, region.kvEnd - 1);
      const float after =
          reader.isLive(b, h, q, kv) ? reader.scoreOf(score, b, h, q, kv) : std::numeric_limits<float>::quiet_NaN();
      map.scores.push_back(after);
    }
  return map;
}

} // namespace

std::vector<LikeScores> likeScores(const MaskReader& reader, const Heads& heads, const MaskRegion& region,
                                   const CellLimits& limits, float score, size_t mostMaps) {
  std::vector<LikeScores> groups;
  std::unordered_map<size_t, size_t> known; // hash of a map -> its group
  for (const auto& [b, h] : heads) {
    ScoreMap map = scoreMapOf(reader, b, h, region, limits, score);
    const std::string_view bytes(reinterpret_cast<const char*>(map.scores.data()), map.scores.size() * sizeof(float));
    const auto [found, isNew] = known.try_emplace(std::hash<std::string_view>()(bytes), groups.size());
    if (isNew) groups.emplace_back();
    groups[found->second].heads.emplace_back(b, h);
    if (isNew && groups.size() <= mostMaps) groups.back().map = std::move(map);
  }
  return groups;
}

ScoreScale::ScoreScale(const std::vector<LikeScores>& groups, float score) : unchanged(score) {
  const auto forEach = [&](auto visit) {
    for (const LikeScores& group : groups)
      for (float after : group.map.scores)
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
