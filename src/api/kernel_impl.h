// What a Kernel holds.
#pragma once

#include "api/forward_sm90.h"
#include "attnc/kernel.h"
#include "attnc/mod.h"
#include "codegen/mod_source.h"
#include "jit/loaded_kernel.h"
#include "plan/catalog.h"

#include <memory>
#include <vector>

namespace attnc {

/// A kernel before loading: its plan, its machine code, and how a launch fills its ModArgs.
struct BuiltKernel {
  Mod mod; ///< with pins applied
  plan::Plan plan;
  std::vector<codegen::Slot> slots;
  std::shared_ptr<const CompiledKernel> compiled; ///< as it comes from memory
};

struct Kernel::Impl {
  std::shared_ptr<const BuiltKernel> built;
  std::shared_ptr<const CompiledKernel> compiled; ///< as the call that gave this kernel came by it
  jit::LoadedKernel loaded;
  DeviceTraits device;
};

} // namespace attnc
