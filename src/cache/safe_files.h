// Opens, reads and publishes files whose content becomes code that runs.
//
// In: directories and names. Out: whole, private files or an errno. Refuses with -EPERM a file or directory that
// belongs to another user, that group or others may write, or that is not of the expected kind. Readers see a published
// file completely or not at all. Not: a file's contents (entry.h), which file (directory.h).
#pragma once

#include "support/file_ops.h"

#include <string>

namespace attnc::cache {

/// Whose files are accepted.
enum class Trust {
  Self,       ///< the effective user's own
  SelfOrRoot, ///< also root's: installed by an administrator
};

/// Returns why a directory is refused with -EPERM, as the end of a sentence about it: "is writable by others (mode
/// 0777)"; empty if it is not refused. Only for messages: the directory may change meanwhile.
std::string whyUnsafe(const std::string& path, Trust trust);

enum class IfMissing { Fail, Create };

/// Opens the directory at `path`, which may be reached through symbolic links (users link caches to scratch disks).
/// Creates it with mode 0700, and its parents, if asked to.
Fd openRoot(FileOps& ops, const std::string& path, Trust trust, IfMissing ifMissing);

/// Opens the directory `name` below `parent`; refuses a symbolic link.
Fd openBelow(FileOps& ops, const Fd& parent, const std::string& name, Trust trust, IfMissing ifMissing);

/// A file's bytes, and what is needed to touch it.
struct ReadFile {
  std::string bytes;
  int64_t modified = 0; ///< seconds since 1970
  Fd fd;
};

/// Reads a regular file of at most `maxBytes`. Does not block on a FIFO or device in its place, and does not follow a
/// link. Never maps the file: truncation by others would raise a signal. Returns 0 or -errno; -EPERM: unsafe.
int readFile(FileOps& ops, const Fd& directory, const std::string& name, Trust trust, size_t maxBytes, ReadFile& out);

/// Writes a file of mode 0600 durably, using NewFile. Returns 0 or -errno.
int publishFile(FileOps& ops, const Fd& directory, const std::string& name, const std::string& bytes);

} // namespace attnc::cache
