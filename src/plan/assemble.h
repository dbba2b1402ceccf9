// Turns a plan's stage and a mod into the text that NVRTC compiles.
#pragma once

#include "plan/kernel_mod.h"
#include "plan/plan.h"

namespace attnc::plan {

/// Joins the stage's template, the templates it may include and the two generated headers. Uses neither disk nor NVRTC.
/// `mod`: made for the stage's algebra; `options`: the plan's.
KernelSource assemble(const KernelMod& mod, const Stage& stage, const KernelOptions& options);

} // namespace attnc::plan
