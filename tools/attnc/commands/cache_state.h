// What the environment says of kernels kept on disk, for `attnc doctor`.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace attnc::cli {

struct CacheState {
  std::string directory; ///< empty if no directory is named
  std::string mode;      ///< "rw", "ro" or "off"
  std::string problem;   ///< why the directory is not used, as the end of a sentence about it; empty if it is
  bool exists = false;
  bool isWritable = false; ///< whether it can be written, or made
  int64_t kernels = 0;
  uint64_t bytes = 0, maxBytes = 0;
  std::vector<std::string> readOnlyDirectories;
  struct Pack {
    std::string file;
    int64_t kernels = 0;
    std::string error; ///< why it cannot be read
  };
  std::vector<Pack> packs;
  std::vector<std::pair<std::string, std::string>> variables; ///< those that attnc reads, which are set
};

/// Reads the environment, and counts the kernels of the cache.
CacheState cacheState();

} // namespace attnc::cli
