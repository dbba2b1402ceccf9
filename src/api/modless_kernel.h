// Kernels that no mod enters, such as those that round operands.
#pragma once

#include "attnc/compiler.h"
#include "jit/loaded_kernel.h"
#include "plan/stage.h"

#include <string>

namespace attnc {

/// Returns what compiles a stage for an arch. `label`: its name in messages and caches.
Expected<KernelSource> modlessSource(const plan::Stage& stage, const std::string& arch, const std::string& label);

/// Compiles the stage for the arch, or takes it from memory or disk. Loads it into the current CUDA context.
Expected<jit::LoadedKernel> loadModless(const Compiler& compiler, const plan::Stage& stage, const std::string& arch,
                                        const std::string& label);

} // namespace attnc
