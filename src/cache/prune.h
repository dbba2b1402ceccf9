// Keeps a cache directory below its size limit.
//
// In: a writable Directory, a cap in bytes, or other limits. Removes the least recently used entries, temporary files
// older than an hour, and all but the newest identities of compilers. Keeps entries that were replaced or used since
// they were examined. One process prunes at a time; the others do not wait. Not: other versions' subdirectories.
//
// A scan of all entries takes milliseconds, so processes share a running total instead. The file `published` has lines
// of fixed length: the bytes that remained after the last scan, then the bytes of each entry published since.
#pragma once

#include "cache/directory.h"
#include "cache/scan.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace attnc::cache {

/// What to remove.
struct PruneLimits {
  uint64_t maxBytes;                ///< above this size, the least recently used entries are removed ...
  uint64_t downTo;                  ///< ... until at most this remains
  std::optional<int64_t> unusedFor; ///< seconds; entries unused for longer are removed. Uses are recorded hourly
  bool forgetsCompilers = false;    ///< also removes all identities of compilers
  bool forgetsTuned = false;        ///< also removes all measured choices; if false, `unusedFor` applies
  bool waits = false;               ///< waits for another process that prunes
  bool dryRun = false;              ///< writes and removes nothing
};

struct PruneReport {
  bool ran = false;                    ///< false: another process prunes, or the directory cannot be used
  int64_t entries = 0;                 ///< entries that remain
  int64_t bytes = 0;                   ///< bytes that remain
  int64_t removed = 0;                 ///< entries removed
  int64_t temporaries = 0;             ///< temporary files removed
  int64_t compilers = 0;               ///< identities of compilers removed
  int64_t tuned = 0;                   ///< measured choices removed
  std::vector<FoundFile> removedFiles; ///< the entries removed
};

class Pruner {
public:
  Pruner(Directory& directory, uint64_t maxBytes) : directory(directory), maxBytes(maxBytes) {}

  /// Call after each publish, with the bytes of the file. Prunes if the directory may exceed the cap, and otherwise
  /// once an hour over all processes.
  void afterPublish(uint64_t publishedBytes);

  /// Prunes by the cap, down to nine tenths of it, so that the next publish does not prune again.
  PruneReport prune() { return prune({.maxBytes = maxBytes, .downTo = maxBytes / 10 * 9, .unusedFor = {}}); }

  PruneReport prune(const PruneLimits& limits);

private:
  void removeTemporaries(const Fd& version, const std::vector<FoundFile>& files, const PruneLimits& limits,
                         PruneReport& report);
  void removeEntries(const Fd& version, std::vector<FoundFile> files, const PruneLimits& limits, PruneReport& report);
  void forgetTuned(const Fd& version, const PruneLimits& limits, PruneReport& report);
  void forgetCompilers(const Fd& version, const PruneLimits& limits, PruneReport& report);
  bool dueByClock(const Fd& version);
  bool dueBySize(const Fd& version, uint64_t publishedBytes);

  Directory& directory;
  uint64_t maxBytes;
};

} // namespace attnc::cache
