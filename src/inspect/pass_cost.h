// What a pass over a problem costs, and the time that follows from it on GPUs that were measured.
#pragma once

#include "attnc/explain.h"

namespace attnc {

/// Returns the cost of the walking launch and of the launches around it. `work`: of its tiles.
PassCost passCostOf(const Explanation& explanation, const TileWork& work);

/// Fills the predicted times, or why there are none.
void predictTimes(Explanation& explanation);

} // namespace attnc
