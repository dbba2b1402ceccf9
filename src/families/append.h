// Writes new rows of K and V into them, with a launch of its own before the kernels that attend to them.
#pragma once

#include "families/family.h"

namespace attnc::plan {

/// Whether a plan's own kernels append: decode kernels do, except in ragged batches and to k
/// and v of e4m3.
bool appendsByItself(const KernelOptions& options);

/// Puts an appending stage first in a plan, if the options ask for new rows and the plan's own kernels do not append.
void addAppending(Plan& plan, const Request& request);

} // namespace attnc::plan
