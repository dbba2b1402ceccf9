// Problems on coordinates: positions divided by a width, and what is left.
#pragma once

#include "infer/problem.h"

namespace attnc::inferred {

/// Returns the conditions on quotients and on remainders, for widths that the elements suggest.
std::vector<AtomPtr> projections(const Problem& problem, Tier tier, int depth);

} // namespace attnc::inferred
