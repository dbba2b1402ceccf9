// What compiles a KernelSource.
#pragma once

#include "attnc/kernel.h"
#include "cache/cache.h"

namespace attnc::jit {

/// Compiles sources to kernels: NVRTC in production, a fake in tests. All functions may be called from any thread.
class KernelCompiler : public cache::CompilerIdentity {
public:
  /// Compiles a source. The result lacks entry, templateName and dynamicSharedBytes. Blame::Environment: no compiler,
  /// or one that does not support this arch. Blame::Internal: the source does not compile; the error contains the log.
  virtual Expected<CompiledKernel> compile(const KernelSource& source) = 0;
};

} // namespace attnc::jit
