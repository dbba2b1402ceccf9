// Operands of a launch for any options of a kernel: fixed shapes at fixed addresses, of memory that nobody reads.
#pragma once

#include "attnc/kernel.h"
#include "attnc/mod.h"

#include <cstdint>
#include <initializer_list>
#include <string>

namespace attnc::test {

/// What a launch is given.
struct Launch {
  BackwardOperands operands = {};
  Outputs outputs = {};
  BackwardOutputs gradients = {};
  Captures captures = {}, captureGradients = {};
  BlockMaskView mask = {};
};

/// Fills a launch of a kernel of these options. `tokens`: Q_LEN and KV_LEN; 0 for lengths of the kind. It holds
/// addresses of its own members, so it may not move.
void fillLaunch(Launch& launch, const Mod& mod, const KernelOptions& options, int64_t tokens = 0);

} // namespace attnc::test
