// One kernel timed on the GPU.
#pragma once

#include "operands.h"
#include "run_options.h"
#include "work.h"

#include "tools/device/device.h"
#include "tools/device/timer.h"

#include <optional>
#include <string>

namespace attnc::cli {

struct Measured {
  KernelOptions kernel;   ///< complete
  std::string passedOver; ///< as Preparation::passedOver
  std::string tile;       ///< as Preparation::tile
  bool isTuned = false;   ///< the tile is one that `attnc tune` chose
  double ms = 0;
  std::optional<double> blockMaskMs; ///< of building the block mask, which launches then walk
  Work work;
  int registers = 0; ///< the most of a launch
  int spillBytes = 0;

  double flops() const { return work.flops(kernel) / (ms * 1e-3); } ///< in a second
  double bytes() const { return work.bytes(kernel) / (ms * 1e-3); } ///< in a second, at least
  double flopsPerByte() const { return work.flops(kernel) / work.bytes(kernel); }
};

/// Times the kernel that `options` ask for: the backward pass alone, where that is asked for. `operands` were found with
/// the same options; `mod` has its pins folded in. Errors: of the compiler and the driver, and sequences of different
/// lengths.
Expected<Measured> measure(const Compiler& compiler, device::Timer& timer, const device::Stream& stream, const Mod& mod,
                           const HostOperands& operands, const RunOptions& options);

} // namespace attnc::cli
