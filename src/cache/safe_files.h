// Opening, reading and publishing of files whose content becomes code that runs.
//
// In: directories and names. Out: whole, private files or an errno. A file or directory is refused with -EPERM if it
// belongs to another user, or if group or others may write to it, or if it is not of the expected kind. Readers see a
// published file whole or not at all. Not: what is in a file (entry.h), which file (directory.h).
#pragma once

#include "cache/file_ops.h"

#include <string>

namespace attnc::cache {

/// Whose files are accepted.
enum class Trust {
  Self,       ///< the effective user's own
  SelfOrRoot, ///< also root's: what an administrator has installed
};

/// Why a directory is refused with -EPERM, as the end of a sentence about it: "is writable by others (mode 0777)"; empty
/// if it is not. For messages: the directory may change meanwhile.
std::string whyUnsafe(const std::string& path, Trust trust);

enum class IfMissing { Fail, Create };

/// Opens the directory at `path`, which may be reached through symbolic links (users link caches to scratch disks), and
/// creates it with mode 0700 together with its parents if asked to.
Fd openRoot(FileOps& ops, const std::string& path, Trust trust, IfMissing ifMissing);

/// Opens the directory `name` below `parent`; a symbolic link is refused.
Fd openBelow(FileOps& ops, const Fd& parent, const std::string& name, Trust trust, IfMissing ifMissing);

/// A file as read: its bytes, and what is needed to touch it.
struct ReadFile {
  std::string bytes;
  int64_t modified = 0; ///< seconds since 1970
  Fd fd;
};

/// Reads a regular file of at most `maxBytes` whole. A FIFO, device or link in its place neither blocks nor is
/// followed. Never maps the file: a truncation by others would be a signal. Returns 0 or -errno; -EPERM: unsafe.
int readFile(FileOps& ops, const Fd& directory, const std::string& name, Trust trust, size_t maxBytes, ReadFile& out);

/// Writes a file of mode 0600 and makes it durable, as a NewFile. Returns 0 or -errno.
int publishFile(FileOps& ops, const Fd& directory, const std::string& name, const std::string& bytes);

} // namespace attnc::cache
