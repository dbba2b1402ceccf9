// One kernel timed on the GPU.
#pragma once

#include "attnc/explain.h"
#include "problem/operands.h"
#include "problem/problem_options.h"

#include "tools/device/device.h"
#include "tools/device/load.h"
#include "tools/device/timer.h"

#include <optional>
#include <string>

namespace attnc::cli {

struct Measured {
  Plan plan;
  double ms = 0;
  std::optional<double> blockMaskMs; ///< time to build the block mask that the launches walk
  std::optional<device::Load> load;  ///< of a launch under load, where NVML is
  Work work;
  int registers = 0; ///< maximum over the launches
  int spillBytes = 0;

  double flops() const { return work.flops(plan.options()) / (ms * 1e-3); } ///< per second
  double bytes() const { return work.bytes(plan.options()) / (ms * 1e-3); } ///< per second, at least
  double flopsPerByte() const { return work.flops(plan.options()) / work.bytes(plan.options()); }
};

/// Times the kernel that `options` describe; with a backward pass, only that pass. `operands` were found with the same
/// options. `mod` has its pins folded in. Errors: of the compiler and the driver, and sequences of different lengths.
Expected<Measured> measure(const Compiler& compiler, device::Timer& timer, const std::optional<device::Nvml>& nvml,
                           const device::Stream& stream, const Mod& mod, const HostOperands& operands,
                           const ProblemOptions& options);

} // namespace attnc::cli
