// Bytes that a compiler makes, from memory, from disk, or from the compiler.
//
// In: the digest of what is compiled, and a function that compiles it. Out: the bytes that came out, and where they came
// from. Equal contents compile once in a process and, with a writable directory, once among all processes. Layers, in
// order: memory (the last few hundred), the user's directory, read-only directories. No failure of a layer fails a call:
// it is a miss, or bytes that are not stored. Not: what the bytes mean.
//
// Who may write the directory decides what code runs on the GPU: it must be private, and the cache refuses it if it is
// not.
//
// The key names the build of the compiler. A disk hit needs that name without opening the compiler, so the directory
// remembers it under the compiler's stamp. Where there is no compiler at all, the bytes of any build that one of the
// directories remembers are served; so a machine without a toolkit can run kernels from a copied cache directory. The
// same holds where compiling is forbidden.
#pragma once

#include "cache/directory.h"
#include "cache/log.h"
#include "cache/prune.h"

#include "attnc/error.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace attnc::cache {

enum class Mode { ReadWrite, ReadOnly, Off };

struct Options {
  std::string directory; ///< of the user; empty: none
  std::vector<std::string> readOnlyDirectories;
  Mode mode = Mode::ReadWrite; ///< Off: memory only, also no read-only directories
  uint64_t maxBytes = uint64_t(1) << 30;
  int lockTimeoutMs = 30'000; ///< how long to wait for another process to compile; then this one compiles as well
  size_t memoryEntries = 256;
  /// False: the compiler is never opened, and a miss is what `compile` says of it. As nothing is compiled, kernels of
  /// any build serve, as where there is no compiler.
  bool mayCompile = true;
  Log log;
};

/// Tells builds of the compiler apart. Both functions may be called from any thread.
class CompilerIdentity {
public:
  virtual ~CompilerIdentity() = default;

  /// Says which compiler binary would be used, without opening it: equal stamps, equal compilers. Costs microseconds.
  /// nullopt: not known without opening it, or there is none.
  virtual std::optional<std::string> stamp() const = 0;

  /// Names the exact build of the compiler; part of every key. Opens the compiler. Blame::Environment: none.
  virtual Expected<std::string> identity() = 0;
};

/// Where bytes came from.
enum class Origin { Memory, Disk, Compiled };

struct CachedBytes {
  std::shared_ptr<const std::string> bytes; ///< never null
  Origin origin = Origin::Memory;
};

struct Counters {
  int64_t memoryHits = 0;
  int64_t diskHits = 0;
  int64_t compiles = 0; ///< failed ones as well
  int64_t published = 0;
  int64_t publishFailures = 0;
  int64_t rejectedEntries = 0; ///< damaged, foreign or unsafe files
  int64_t lockFailures = 0;    ///< compiles without a lock: time-outs, unusable locks
};

/// Thread-safe. Different contents compile in parallel.
class Cache {
public:
  using Compile = std::function<Expected<std::string>()>;

  Cache(Options options, std::shared_ptr<CompilerIdentity> compiler,
        std::shared_ptr<FileOps> ops = std::make_shared<FileOps>());
  ~Cache();

  /// `content`: digest of everything that decides the bytes but the compiler. `name`: for people who list a directory.
  /// `compile` makes the bytes; it is called on this thread, at most once. Errors are its errors only. Threads that wait
  /// for the same content get the same error; the next call tries again.
  Expected<CachedBytes> getOrCompile(const Digest& content, const std::string& name, const Compile& compile);

  /// The choice of this key as the first layer that has one has it; not from memory. nullopt: none is there.
  std::optional<TunedFile> findTuned(const Digest& key) const;
  /// Directory::publishTuned() of the user's directory. Empty: nothing may be written, or the log says why.
  std::string publishTuned(const Digest& key, const std::string& text) const;

  Counters counters() const;

private:
  struct Request;
  struct Flight;
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace attnc::cache
