// Running attention on the GPU, from host memory to host memory.
#pragma once

#include "commands/result.h"
#include "problem/operands.h"
#include "problem/problem_options.h"

#include "tools/device/device.h"

namespace attnc::cli {

/// Compiles the kernel for the mod and the operands' layout, builds the block mask on the GPU if that kernel gains from
/// one, runs it and copies the results back. `mod` has its pins folded in, because then a mask may need no lists, or
/// those of one head only. `context` is current. Errors: of the compiler, the driver, or the device's memory.
Expected<RunResult> runOnGpu(const device::Context& context, const Mod& mod, const HostOperands& operands,
                             const ProblemOptions& options);

} // namespace attnc::cli
