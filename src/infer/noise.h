// Noise: few elements, apart from each other, that keep a mask from being a simpler one.
#pragma once

#include "infer/problem.h"

#include <utility>

namespace attnc::inferred {

struct Noise {
  Expr expr;                                       ///< The simpler mask.
  int64_t elements = 0;                            ///< Number of elements that differ.
  std::vector<std::pair<int64_t, int64_t>> places; ///< The first few: row of all slices, column.
};

/// Finds a mask that costs at most half of `cost` and differs in less than one of 100 elements, hardly any of which are
/// neighbours.
std::optional<Noise> noiseOf(const Relation& mask, int64_t batch, int64_t heads, double cost);

} // namespace attnc::inferred
