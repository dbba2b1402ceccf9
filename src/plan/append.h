// New rows of K and V, written into them by a launch of its own, ahead of the kernels that attend to them.
#pragma once

#include "plan/family.h"

namespace attnc::plan {

/// Puts the stage in front, where the options ask for it and the plan's own kernels do not append: of forward plans.
void addAppending(Plan& plan, const Request& request);

} // namespace attnc::plan
