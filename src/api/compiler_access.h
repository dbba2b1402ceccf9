// What other files of the library, and tests, may ask of a Compiler.
#pragma once

#include "attnc/compiler.h"
#include "jit/kernel_cache.h"

namespace attnc {

struct CompilerAccess {
  /// Otherwise as Compiler::loadForward(). Reads only arch, pins, columnLists and maskByBoxes.
  static Expected<BlockMaskKernel> loadBlockMask(const Compiler& compiler, const Mod& mod,
                                                 const KernelOptions& options);
  /// Compiles a program without a mod, or takes it from memory or disk.
  static Expected<jit::CachedKernel> compile(const Compiler& compiler, const jit::CompileJob& job);
};

} // namespace attnc
