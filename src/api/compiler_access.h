// What other files of the library, and tests, may ask of a Compiler and of what it prepared.
#pragma once

#include "attnc/compiler.h"
#include "jit/kernel_cache.h"

#include <future>

namespace attnc {

struct CompilerAccess {
  /// Otherwise as Compiler::loadForward(). `plan`: of blockMaskOptions(). `compiled`: see Compiler::Impl::load().
  static Expected<BlockMaskKernel> loadBlockMask(const Compiler& compiler, const Plan& plan,
                                                 std::future<Expected<CompiledStages>> compiled = {});
  /// Returns what a kernel launches.
  static const Kernel::Impl& implOf(const Kernel& kernel) { return *kernel.impl; }
  /// Compiles a program without a mod, or takes it from memory or disk.
  static Expected<CompiledKernel> compile(const Compiler& compiler, const KernelSource& source);
};

/// The workspace of an attention that was prepared for training, in two parts: what both passes keep, and what a
/// backward launch may overwrite. So several attentions share the second part.
struct PreparedAccess {
  static size_t keptBytes(const Prepared& prepared);
  static size_t scratchBytes(const Prepared& prepared);
  /// Prepared::launchBackward(). `kept`: the workspace of initialise() and launch().
  static Status launchBackward(const Prepared& prepared, const BackwardOperands& operands,
                               const BackwardOutputs& outputs, void* kept, void* scratch, Stream stream);
};

} // namespace attnc
