// Compiled kernels, from memory, from disk, or from the compiler.
//
// In: a CompileJob. Out: its machine code, and where it came from. Equal jobs compile once in a process and, with a
// writable directory, once among all processes. Layers, in order: memory (the last few hundred kernels), the user's
// directory, read-only directories. No failure of a layer fails a call: it is a miss, or a kernel that is not stored.
//
// Who may write the directory decides what code runs on the GPU: it must be private, and the cache refuses it if it is
// not. Not: loading (loaded_kernel.h), attention, IR.
//
// The key names the build of the compiler. A disk hit needs that name without opening NVRTC, so the directory remembers
// it under the stamp of the library: its file (device, inode, size, time), and the one setting that it takes from the
// environment. Where there is no NVRTC at all, a kernel of any build that one of the directories remembers is served; so
// a machine without a toolkit runs from a pack.
#pragma once

#include "jit/cache_directory.h"
#include "jit/cache_prune.h"
#include "jit/compile_job.h"
#include "jit/env.h"
#include "jit/log.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace attnc::jit {

enum class CacheMode { ReadWrite, ReadOnly, Off };

struct CacheOptions {
  std::string directory; ///< of the user; empty: none
  std::vector<std::string> readOnlyDirectories;
  CacheMode mode = CacheMode::ReadWrite; ///< Off: memory only, also no read-only directories
  uint64_t maxBytes = uint64_t(1) << 30;
  int lockTimeoutMs = 30'000; ///< how long to wait for another process to compile; then this one compiles as well
  size_t memoryEntries = 256;
  std::string dumpDirectory; ///< see dump.h; empty: none
  Log log;

  /// What the environment asks for. A value that makes no sense is warned of and the default taken.
  static CacheOptions fromEnv(const Env& env, LogSink sink = {});
};

/// Where a kernel came from.
enum class Origin { Memory, Disk, Compiled };

struct CachedKernel {
  std::shared_ptr<const CompileResult> result;
  Origin origin = Origin::Memory;
};

struct CacheCounters {
  int64_t memoryHits = 0;
  int64_t diskHits = 0;
  int64_t compiles = 0; ///< failed ones as well
  int64_t published = 0;
  int64_t publishFailures = 0;
  int64_t rejectedEntries = 0; ///< damaged, foreign or unsafe files
  int64_t lockFailures = 0;    ///< compiles without a lock: time-outs, unusable locks
};

/// Thread-safe. Different jobs compile in parallel.
class Cache {
public:
  Cache(CacheOptions options, std::shared_ptr<KernelCompiler> compiler,
        std::shared_ptr<FileOps> ops = std::make_shared<FileOps>());
  ~Cache();

  /// Errors are those of the compiler only. Threads that wait for the same job get the same error; the next call tries
  /// again. Costs the hashing of the job's texts (about 2.5 us a KiB) even from memory.
  Expected<CachedKernel> getOrCompile(const CompileJob& job);

  CacheCounters counters() const;

private:
  struct Flight;
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace attnc::jit
