// Loads kernels that build block masks, for Compiler::prepare() and tests.
#pragma once

#include "attnc/compiler.h"

namespace attnc {

struct CompilerAccess {
  /// Otherwise as Compiler::loadForward(). Reads only arch, pins, columnLists and maskByBoxes.
  static Expected<BlockMaskKernel> loadBlockMask(const Compiler& compiler, const Mod& mod,
                                                 const KernelOptions& options);
};

} // namespace attnc
