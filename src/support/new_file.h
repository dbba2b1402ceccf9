// A file that appears under its name completely or not at all.
#pragma once

#include "support/file_ops.h"

#include <string>
#include <string_view>

namespace attnc {

/// Writes all bytes, retrying after short writes. Returns 0 or -errno.
int writeWhole(FileOps& ops, int fd, std::string_view bytes);

/// Writes to a temporary name in the same directory and renames it at the end. After the first failure all functions do
/// nothing, and publish() returns that failure. The destructor removes an unpublished file. If that also fails, the
/// file is recognizable by kTemporaryPrefix.
class NewFile {
public:
  /// `directory`: an open descriptor. `mode`: permissions, reduced by the umask.
  NewFile(FileOps& ops, int directory, unsigned mode);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  /// Sets the permissions, ignoring the umask.
  void setMode(unsigned mode);
  void write(std::string_view bytes);
  /// Waits until the content is on disk. After a crash of the machine the name then has either this content or its
  /// previous one.
  void sync();
  /// Closes the file and renames it to `name`, replacing a file of that name. Returns 0 or -errno. Call at most once.
  int publish(const std::string& name);

private:
  void attempt(int result) { error = error < 0 ? error : result; }

  FileOps& ops;
  int directory;
  std::string temporary;
  Fd fd;
  int error = 0;
  bool isTemporary; ///< whether a file of the temporary name exists
};

/// The prefix of names of files that are being written, or were left by a killed process.
constexpr char kTemporaryPrefix[] = ".tmp-";

} // namespace attnc
