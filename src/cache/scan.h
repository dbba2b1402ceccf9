// The files of a cache directory, by their places.
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
  std::vector<FoundFile> entries;     ///< by their names alone
  std::vector<FoundFile> temporaries; ///< that are being written, or were left over by a killed process
};

/// Looks at all subdirectories of the version's directory that an entry can be in. What vanishes meanwhile is not
/// there, and what cannot be opened has nothing in it.
Scan scan(FileOps& ops, const Fd& version, Trust trust);

/// Identities of compilers.
std::vector<FoundFile> scanCompilers(FileOps& ops, const Fd& version, Trust trust);

/// Measured choices of tiles.
std::vector<FoundFile> scanTuned(FileOps& ops, const Fd& version, Trust trust);

} // namespace attnc::cache
