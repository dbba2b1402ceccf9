// From a plan and a mod to the text that NVRTC is given.
#pragma once

#include "codegen/mod_source.h"
#include "kernels/catalog.h"

#include <vector>

namespace attnc::kernels {

/// A kernel's text and how its ModArgs are filled at launch.
struct Assembly {
  KernelSource source;
  std::vector<codegen::Slot> slots;
  int64_t sharedBytes = 0; ///< dynamic shared memory of a CTA: the plan's, and what the mod needs beside it
  /// attnc_mod.cuh without what does not change the machine code: names, file, lines. Equal for mods of equal IR, so the
  /// cache keys on it; a change of the code generator changes it.
  std::string modKey;
};

/// How the mod is emitted for a kernel: plain, or with the algebra that templates/algo/apply_mod.cuh takes.
codegen::ModOptions modOptions(const KernelOptions& options);

/// Joins the plan's template, the templates it may include and the two generated headers. No disk, no NVRTC.
Assembly assemble(const ir::Module& module, const Plan& plan);

} // namespace attnc::kernels
