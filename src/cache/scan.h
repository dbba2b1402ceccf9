// Lists the files of a cache directory.
#pragma once

#include "cache/safe_files.h"

#include <string>
#include <sys/stat.h>
#include <vector>

namespace attnc::cache {

struct FoundFile {
  std::string subdirectory, name; ///< below the version's directory
  struct stat status;
};

struct Scan {
  std::vector<FoundFile> entries;     ///< recognized only by their names
  std::vector<FoundFile> temporaries; ///< being written, or left by a killed process
};

/// Scans all subdirectories of the version's directory that can contain entries. Skips files that vanish meanwhile, and
/// directories that cannot be opened.
Scan scan(FileOps& ops, const Fd& version, Trust trust);

/// Lists the identities of compilers.
std::vector<FoundFile> scanCompilers(FileOps& ops, const Fd& version, Trust trust);

/// Lists the measured choices of tiles.
std::vector<FoundFile> scanTuned(FileOps& ops, const Fd& version, Trust trust);

} // namespace attnc::cache
