// From a stage of a plan and a mod to the text that NVRTC is given.
#pragma once

#include "plan/kernel_mod.h"
#include "plan/plan.h"

namespace attnc::plan {

/// Joins the stage's template, the templates it may include and the two generated headers. No disk, no NVRTC. `mod` is
/// of the stage's algebra, `options` are those of the plan.
KernelSource assemble(const KernelMod& mod, const Stage& stage, const KernelOptions& options);

} // namespace attnc::plan
