// Compiled kernels from named packs, memory, disk, the default pack or the compiler.
//
// In: a KernelSource. Out: its machine code, and where it came from. The cache (cache/cache.h) stores bytes; this class
// interprets them, and dumps the inputs of compilations for people (dump.h). Not: loading (loaded_kernel.h).
#pragma once

#include "cache/cache.h"
#include "cache/pack.h"
#include "jit/kernel_compiler.h"
#include "jit/packs.h"

#include <memory>
#include <string>

namespace attnc::jit {

/// Where kernels come from besides the cache and the compiler. Either may be null.
struct PackLayers {
  std::shared_ptr<Packs> named;     ///< searched before the cache
  std::shared_ptr<Packs> byDefault; ///< searched after the cache
};

/// Thread-safe. Different sources compile in parallel.
class KernelCache {
public:
  /// `dumpDirectory`: see dump.h; empty: no dumps.
  KernelCache(cache::Options options, std::shared_ptr<KernelCompiler> compiler, std::string dumpDirectory = {},
              PackLayers packs = {});

  /// Returns the kernel of a source, even from memory at the cost of hashing the source's texts and copying the result.
  /// Errors: those of the compiler and of opening packs; sources that cannot be cached (checkOptions() of nvrtc.h);
  /// Blame::Environment for a kernel that is found nowhere while compiling is forbidden.
  Expected<CompiledKernel> getOrCompile(const KernelSource& source);

  /// Like the functions of cache::Cache.
  std::optional<cache::TunedFile> findTuned(const cache::Digest& key) const { return cache.findTuned(key); }
  std::string publishTuned(const cache::Digest& key, const std::string& text) const {
    return cache.publishTuned(key, text);
  }

  /// Returns the result of getOrCompile() in the form that a pack stores.
  Expected<cache::PackedValue> packed(const KernelSource& source);

private:
  Expected<CompiledKernel> decoded(const cache::CachedBytes& cached, const KernelSource& source,
                                   const cache::Digest& content);
  Expected<CompiledKernel> find(const KernelSource& source, const cache::Digest& content);
  Expected<CompiledKernel> compile(const KernelSource& source, const cache::Digest& content);

  cache::Log log;
  std::string dumpDirectory;
  std::shared_ptr<KernelCompiler> compiler;
  PackLayers packs;
  bool mayCompile;
  cache::Cache cache;
};

} // namespace attnc::jit
