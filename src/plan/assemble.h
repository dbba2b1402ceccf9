// From a stage of a plan and a mod to the text that NVRTC is given.
#pragma once

#include "codegen/mod_source.h"
#include "plan/plan.h"

#include <string>
#include <vector>

namespace attnc::plan {

/// A kernel's text and how its ModArgs are filled at launch.
struct Assembly {
  KernelSource source;
  std::vector<codegen::Slot> slots;
  /// attnc_mod.cuh without what does not change the machine code: names, file, lines. Equal for mods of equal IR, so
  /// the cache keys on it; a change of the code generator changes it.
  std::string modKey;
};

/// Joins the stage's template, the templates it may include and the two generated headers. No disk, no NVRTC. `options`
/// are those of the plan.
Assembly assemble(const ir::Module& module, const Stage& stage, const KernelOptions& options);

} // namespace attnc::plan
