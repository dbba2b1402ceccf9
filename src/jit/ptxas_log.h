// Parses the resource lines that ptxas writes with `-v`.
//
// In: the log of a successful compilation, of any CUDA 12 or 13. Out: numbers and advisory lines. Not: judging them.
// Unknown lines are skipped; a log without numbers gives zeros.
#pragma once

#include "attnc/kernel.h"

#include <string_view>

namespace attnc::jit {

/// Fills registers, spillBytes, staticSharedBytes, stackBytes and advisories from `log`. Leaves other members
/// unchanged.
void readPtxasLog(std::string_view log, CompiledKernel& result);

/// Whether the advisories of a kernel say that ptxas serialises wgmma, or waits for it (C7510 to C7520).
bool serialisesProducts(const CompiledKernel& kernel);

} // namespace attnc::jit
