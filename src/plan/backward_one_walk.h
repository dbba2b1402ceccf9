// Gradients with mma.sync and cp.async in one walk: every product once, dQ by sums in fp32.
#pragma once

#include "plan/family.h"

#include <optional>

namespace attnc::plan {

/// Of the sm80 family's backward kernels, the faster form. Its dQ depends on the order in which CTAs add to it. Nothing
/// where that may not be (KernelOptions::deterministic), and where its tiles do not fit: f32, wide heads, lists of small
/// blocks.
std::optional<Plan> planBackwardOneWalk(const Request& request);

} // namespace attnc::plan
