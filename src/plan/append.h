// Writes new rows of K and V into them, with a launch of its own before the kernels that attend to them.
#pragma once

#include "plan/family.h"

namespace attnc::plan {

/// Puts an appending stage first in a forward plan, if the options ask for it and the plan's own kernels do not append.
void addAppending(Plan& plan, const Request& request);

} // namespace attnc::plan
