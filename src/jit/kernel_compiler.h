// What a compiler takes.
#pragma once

#include "attnc/kernel.h"
#include "cache/cache.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace attnc::jit {

/// Compiles jobs to kernels: NVRTC in production, a fake in tests. All functions may be called from any thread.
class KernelCompiler : public cache::CompilerIdentity {
public:
  /// Compiles a source. The result tells neither entry and templateName nor dynamicSharedBytes. Blame::Environment: no
  /// compiler, or one that does not support this arch. Blame::Internal: the source does not compile; the error contains
  /// the log.
  virtual Expected<CompiledKernel> compile(const KernelSource& source) = 0;
};

} // namespace attnc::jit
