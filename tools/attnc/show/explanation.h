// The output of `attnc explain` about a kernel and a problem, line by line. explain.cpp finds the facts; this turns
// them into text.
#pragma once

#include "attnc/explain.h"

#include <optional>
#include <string>
#include <vector>

namespace attnc::cli {

/// Describes the cost of spilling this many bytes; empty for 0.
std::string spillText(int bytes);

/// Returns lines "kernel" and "layouts"; between them "tile", "resources", "advisories" of each stage, under a line
/// "launch" with its number if there are several. `asked` is the family that the user named.
std::string kernelText(const Explanation& all, Family asked);

/// Returns line "tile from": the tile as --tile takes it, who chose it, and where that is kept.
std::string tileText(const Plan& kernel);

/// Returns lines "choice" and "division": why a decode kernel is taken or not, unless the user chose; and what work it
/// divides.
std::string kindText(const Preparation& preparation, const std::vector<KernelSource>& sources);

/// Returns lines "KV loop", "blocks", "FLOPs" and "bytes", and for decode kernels "K and V": the work that the mask
/// leaves. Sampled figures begin with "about". The figures are for the backward pass if that was settled. `grid` is
/// given for a box kernel, whose line "boxes" replaces "blocks". `masks`: whether the mod masks anything.
std::string workText(const MaskCensus& census, const std::optional<GridCensus>& grid, const Preparation& preparation,
                     bool masks);

/// Returns lines "per score": the operations for each score of a full and of a partial block, and the additional ones
/// of the gradient.
/// Returns what a score of each mod of a choice costs, or that it costs all of them; empty without a choice.
std::string perVariantText(const Explanation& all);
std::string scoreText(const ScoreCost& cost, KvLoop loop);

/// Returns about three digits: "0.801", "12.3".
std::string millisecondsText(double ms);

/// Returns "0.801 ms on H100 rested, median error 4.9 %, worst 12.0 % over 23 rows".
std::string timeText(const PassTime& time);

/// Returns lines "time": the predicted times of the pass, or why there are none.
std::string timesText(const Explanation& all);

/// Returns lines "gradients": how the gradient of each capture is summed, place by place; empty if no capture wants
/// one.
std::string gradientsText(const std::vector<GradientSum>& sums);

} // namespace attnc::cli
