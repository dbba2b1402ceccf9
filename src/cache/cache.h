// Bytes that a compiler makes, from memory, from disk, or from the compiler.
//
// In: the digest of what is compiled, and a function that compiles it. Out: the resulting bytes, and where they came
// from. Equal contents compile once per process and, with a writable directory, once among all processes. Layers, in
// order: memory (the last few hundred), the user's directory, read-only directories. A failing layer fails no call: it
// is a miss, or bytes are not stored. Not: the meaning of the bytes.
//
// Whoever can write the directory decides what code runs on the GPU. So it must be private; the cache refuses it
// otherwise.
//
// The key names the build of the compiler. A disk hit needs that name without opening the compiler, so the directory
// remembers it under the compiler's stamp. Without any compiler, or if compiling is forbidden, bytes are served from
// any build that one of the directories remembers. So a machine without a toolkit can run kernels from a copied cache
// directory.
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
  std::string directory; ///< the user's directory; empty: none
  std::vector<std::string> readOnlyDirectories;
  Mode mode = Mode::ReadWrite; ///< Off: only memory, without read-only directories
  uint64_t maxBytes = uint64_t(1) << 30;
  int lockTimeoutMs = 30'000; ///< the longest wait for another process's compilation; then compiles as well
  size_t memoryEntries = 256;
  /// If false, the compiler is never opened, and a miss returns what `compile` returns. Kernels of any build are then
  /// valid, as without a compiler.
  bool mayCompile = true;
  Log log;
};

/// Distinguishes builds of the compiler. Both functions may be called from any thread.
class CompilerIdentity {
public:
  virtual ~CompilerIdentity() = default;

  /// Returns a stamp of the compiler binary that would be used, without opening it. Equal stamps mean equal compilers.
  /// Takes microseconds. nullopt: unknown without opening it, or no compiler.
  virtual std::optional<std::string> stamp() const = 0;

  /// Returns the exact build of the compiler, a part of every key. Opens the compiler. Blame::Environment: no compiler.
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
  int64_t compiles = 0; ///< includes failed ones
  int64_t published = 0;
  int64_t publishFailures = 0;
  int64_t rejectedEntries = 0; ///< damaged, foreign or unsafe files
  int64_t lockFailures = 0;    ///< compilations without a lock: time-outs, unusable locks
};

/// Thread-safe. Different contents compile in parallel.
class Cache {
public:
  using Compile = std::function<Expected<std::string>()>;

  Cache(Options options, std::shared_ptr<CompilerIdentity> compiler,
        std::shared_ptr<FileOps> ops = std::make_shared<FileOps>());
  ~Cache();

  /// Returns the bytes of this content. `content`: digest of everything that determines the bytes except the compiler.
  /// `name`: for people who list a directory. `compile` makes the bytes; it is called on this thread, at most once. The
  /// only errors are those of `compile`. Threads that wait for the same content get the same error; the next call tries
  /// again.
  Expected<CachedBytes> getOrCompile(const Digest& content, const std::string& name, const Compile& compile);

  /// Returns the bytes of this content if memory or a directory has them. Neither opens the compiler nor waits for a
  /// compilation. nullopt also if only the compiler itself can tell its identity.
  std::optional<CachedBytes> find(const Digest& content);

  /// Returns the choice of this key from the first directory that has one; memory is not searched. nullopt: not found.
  std::optional<TunedFile> findTuned(const Digest& key) const;
  /// Calls Directory::publishTuned() of the user's directory. Empty: not writable, or the log has the reason.
  std::string publishTuned(const Digest& key, const std::string& text) const;

  Counters counters() const;

private:
  struct Request;
  struct Flight;
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace attnc::cache
