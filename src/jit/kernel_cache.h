// Compiled kernels, from memory, from disk, or from the compiler.
//
// In: a CompileJob. Out: its machine code, and where it came from. The cache (cache/cache.h) keeps bytes; here is what
// they mean, and what they are compiled from is dumped for people (dump.h). Not: loading (loaded_kernel.h).
#pragma once

#include "cache/cache.h"
#include "jit/compile_job.h"

#include <memory>
#include <string>

namespace attnc::jit {

struct CachedKernel {
  CompileResult result;
  cache::Origin origin = cache::Origin::Memory;
};

/// Thread-safe. Different jobs compile in parallel.
class KernelCache {
public:
  /// `dumpDirectory`: see dump.h; empty: none.
  KernelCache(cache::Options options, std::shared_ptr<KernelCompiler> compiler, std::string dumpDirectory = {});

  /// Errors are those of the compiler only, and jobs that cannot be cached (checkOptions() of nvrtc.h). Costs the
  /// hashing of the job's texts and a copy of the result even from memory.
  Expected<CachedKernel> getOrCompile(const CompileJob& job);

private:
  Expected<CompileResult> compile(const CompileJob& job, const cache::Digest& content);

  cache::Log log;
  std::string dumpDirectory;
  std::shared_ptr<KernelCompiler> compiler;
  cache::Cache cache;
};

} // namespace attnc::jit
