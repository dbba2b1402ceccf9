// Operands of a launch for any options of a kernel: fixed shapes at fixed addresses, of memory that nobody reads.
#pragma once

#include "attnc/kernel.h"
#include "attnc/mod.h"

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace attnc::test {

/// What a launch is given.
struct Launch {
  BackwardOperands operands = {};
  Outputs outputs = {};
  BackwardOutputs gradients = {};
  Captures captures = {}, captureGradients = {}, reductions = {};
  BlockMaskView mask = {};
};

/// Returns numbers of tokens for fillLaunch(): for kernels by boxes those of the grids of library mods, without text
/// and with 64 tokens of it; else only 0.
std::vector<int64_t> tokensOf(const KernelOptions& options);

/// Fills a launch of a kernel of these options. `tokens`: Q_LEN and KV_LEN; 0 for lengths of the kind. It holds
/// addresses of its own members, so it may not move.
void fillLaunch(Launch& launch, const Mod& mod, const KernelOptions& options, int64_t tokens = 0);

} // namespace attnc::test
