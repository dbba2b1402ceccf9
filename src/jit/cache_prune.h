// Keeps a cache directory below its size.
//
// In: a writable CacheDirectory, a cap in bytes. Out: the least recently used entries, temporary files older than an
// hour, and all but the newest identities of compilers are removed. An entry that was replaced or used since it was
// looked at stays. One process prunes at a time; the others do not wait. Not: other versions' subdirectories.
#pragma once

#include "jit/cache_directory.h"

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace attnc::jit {

struct PruneReport {
  bool ran = false;        ///< false: another process does it, or the directory cannot be used
  int64_t entries = 0;     ///< that remain
  int64_t bytes = 0;       ///< that they take
  int64_t removed = 0;     ///< entries removed
  int64_t temporaries = 0; ///< temporary files removed
};

class CachePruner {
public:
  CachePruner(CacheDirectory& directory, uint64_t maxBytes) : directory(directory), maxBytes(maxBytes) {}

  /// To be called after each publish: prunes at most once an hour over all processes, and whenever this process has
  /// published an eighth of the cap since it pruned last.
  void afterPublish(uint64_t publishedBytes);

  PruneReport prune();

private:
  struct Found;
  void look(const Fd& fd, const std::string& subdirectory, std::vector<Found>& entries, PruneReport& report);
  void scan(const Fd& version, std::vector<Found>& entries, PruneReport& report);
  void removeOldest(const Fd& version, std::vector<Found>& entries, PruneReport& report);
  void forgetCompilers(const Fd& version);
  bool dueByClock();

  CacheDirectory& directory;
  uint64_t maxBytes;
  std::atomic<uint64_t> publishedSince{0};
};

} // namespace attnc::jit
