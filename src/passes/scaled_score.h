// score_mod = out * f(in * score): factors that heads know, taken out of what is computed per score.
//
// In: a module after the passes. Out: f as score_mod, with `in` and `out` as values of their own. A kernel multiplies
// the softmax scale by `in` and the factor of its exponential by `out`, once per tile, so that a soft cap
// cap * tanh(score / cap) costs a score the tanh alone.
//
// `out` is positive, so that the greatest f belongs to the greatest score. Where the sign of the factor is unknown, f
// must be odd and takes the sign: -3 tanh(x) = 3 tanh(-x). A factor of 0 becomes 2^-126.
// Not: sums in or around f, which stay in it.
#pragma once

#include "ir/ir.h"

#include <optional>

namespace attnc::passes {

struct ScaledScore {
  ir::Module module; ///< the given one, with values added at the end; score_mod is f, of a score times `in`
  std::optional<ir::Value> in, out; ///< f32, known per head; one of them may be missing, which means 1
};

/// Nothing where there is no factor, or where f would be the score itself.
std::optional<ScaledScore> scaledScore(const ir::Module& module);

} // namespace attnc::passes
