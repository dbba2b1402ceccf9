// What a score_mod makes of scores: a map over positions for one given score, or a curve over scores. Or what a
// prob_mod makes of weights, or the sinks of rows.
#pragma once

#include "attnc/explain.h"
#include "show/mask_map.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace attnc::cli {

/// Scores after score_mod, one for each cell: of the position in the middle of the cell.
struct ScoreMap : CellGrid {
  std::vector<float> cells; ///< row by row; NaN: masked
};
using LikeScores = Alike<ScoreMap>;

/// What a map shows.
enum class Mapped { Scores, Weights, Sinks };

/// Returns the map of one head. Each score, or weight, of the region was `score`. Reads at most limits.rows x
/// limits.columns scores.
ScoreMap scoreMapOf(const MaskReader& reader, int64_t b, int64_t h, const MaskRegion& region, const CellLimits& limits,
                    float score, Mapped mapped);

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
