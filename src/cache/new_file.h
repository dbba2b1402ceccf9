// A file that appears under its name complete or not at all.
#pragma once

#include "cache/file_ops.h"

#include <string>
#include <string_view>

namespace attnc::cache {

/// Writes all bytes, in spite of short writes. Returns 0 or -errno.
int writeWhole(FileOps& ops, int fd, std::string_view bytes);

/// Writes to a temporary name in the same directory and renames it at the end. After the first failure all functions do
/// nothing, and publish() returns that failure. The destructor removes a file that was not published; if that fails
/// too, kTemporaryPrefix tells it from others.
class NewFile {
public:
  /// `directory`: an open descriptor. `mode`: permissions, reduced by the umask.
  NewFile(FileOps& ops, int directory, unsigned mode);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  /// Sets the permissions, whatever the umask.
  void setMode(unsigned mode);
  void write(std::string_view bytes);
  /// Waits until the content is on disk. After a crash of the machine the name then has either this content or what it
  /// had before.
  void sync();
  /// Closes the file and renames it to `name`, replacing a file of that name. Returns 0 or -errno. To be called once.
  int publish(const std::string& name);

private:
  void attempt(int result) { error = error < 0 ? error : result; }

  FileOps& ops;
  int directory;
  std::string temporary;
  Fd fd;
  int error = 0;
  bool isTemporary; ///< a file of the temporary name exists
};

/// Begins the names of files that are being written, or were left over by a killed process.
constexpr char kTemporaryPrefix[] = ".tmp-";

} // namespace attnc::cache
