// Keeps a cache directory below its size.
//
// In: a writable Directory, a cap in bytes. Out: the least recently used entries, temporary files older than an
// hour, and all but the newest identities of compilers are removed. An entry that was replaced or used since it was
// looked at stays. One process prunes at a time; the others do not wait. Not: other versions' subdirectories.
//
// A scan of all entries takes milliseconds, so processes share a running total instead. The file `published` has lines
// of fixed length: the bytes that remained after the last scan, then the bytes of each entry published since.
#pragma once

#include "cache/directory.h"

#include <cstdint>
#include <string>
#include <vector>

namespace attnc::cache {

struct PruneReport {
  bool ran = false;        ///< false: another process does it, or the directory cannot be used
  int64_t entries = 0;     ///< that remain
  int64_t bytes = 0;       ///< that they take
  int64_t removed = 0;     ///< entries removed
  int64_t temporaries = 0; ///< temporary files removed
};

class Pruner {
public:
  Pruner(Directory& directory, uint64_t maxBytes) : directory(directory), maxBytes(maxBytes) {}

  /// To be called after each publish, with the bytes of the file: prunes if the directory may be above the cap, and once
  /// an hour over all processes.
  void afterPublish(uint64_t publishedBytes);

  PruneReport prune();

private:
  struct Found;
  void look(const Fd& fd, const std::string& subdirectory, std::vector<Found>& entries, PruneReport& report);
  void scan(const Fd& version, std::vector<Found>& entries, PruneReport& report);
  void removeOldest(const Fd& version, std::vector<Found>& entries, PruneReport& report);
  void forgetCompilers(const Fd& version);
  bool dueByClock(const Fd& version);
  bool dueBySize(const Fd& version, uint64_t publishedBytes);

  Directory& directory;
  uint64_t maxBytes;
};

} // namespace attnc::cache
