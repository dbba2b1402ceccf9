// What a score_mod makes of scores: a map over positions for one given score, or a curve over scores.
#pragma once

#include "attnc/explain.h"
#include "show/mask_map.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace attnc::cli {

/// Scores after score_mod, one for each cell: of the position in the middle of the cell.
struct ScoreMap : CellGrid {
  std::vector<float> scores; ///< row by row; NaN: masked
};

/// Heads whose scores look the same.
struct LikeScores {
  Heads heads;
  ScoreMap map; ///< empty beyond the limit of likeScores()
};

/// Groups heads whose scores look the same, in their order. The first `mostMaps` groups have their maps. Each score of
/// the region was `score`. Reads at most limits.rows x limits.columns scores a head.
std::vector<LikeScores> likeScores(const MaskReader& reader, const Heads& heads, const MaskRegion& region,
                                   const CellLimits& limits, float score, size_t mostMaps);

/// A scale for what score_mod adds, even around 0: about linear below 1, logarithmic beyond.
class ScoreScale {
public:
  static constexpr int kLevels = 16; ///< on each side

  /// Covers the scores of all maps. `score` is what they were.
  ScoreScale(const std::vector<LikeScores>& groups, float score);
  /// Returns -kLevels .. kLevels; 0 for a score that stays about as it was.
  int levelOf(float after) const;
  /// Returns the score in the middle of a level.
  double scoreAt(int level) const;
  int lowest() const { return least; }
  int highest() const { return most; }

private:
  double unchanged, reach = 0; ///< reach: the largest change
  int least = 0, most = 0;     ///< levels that occur, with 0
};

/// Returns pairs of a score and what score_mod makes of it, from -range to range. The mod reads no position.
std::vector<std::pair<double, double>> scoreCurve(const MaskReader& reader, double range, int points);

} // namespace attnc::cli
