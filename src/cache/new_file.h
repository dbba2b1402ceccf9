// A file in the making, which appears under its name whole or not at all.
#pragma once

#include "cache/file_ops.h"

#include <string>
#include <string_view>

namespace attnc::cache {

/// Writes all bytes, in spite of short writes. Returns 0 or -errno.
int writeWhole(FileOps& ops, int fd, std::string_view bytes);

/// Written under a temporary name, beside the file that it becomes. After the first failure all functions do nothing, and
/// publish() returns it. Unless published, nothing of it is left (unless removing fails, too: see kTemporaryPrefix).
class NewFile {
public:
  /// In this open directory, with these permissions as far as the umask leaves them.
  NewFile(FileOps& ops, int directory, unsigned mode);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  /// Exactly these permissions.
  void setMode(unsigned mode);
  void write(std::string_view bytes);
  /// Waits until the content is on the disk: after a crash of the machine the name shows it, or what it showed before.
  void sync();
  /// Closes, and gives it its name; a file of this name is replaced. Returns 0 or -errno. To be called once.
  int publish(const std::string& name);

private:
  void attempt(int result) { error = error < 0 ? error : result; }

  FileOps& ops;
  int directory;
  std::string temporary;
  Fd fd;
  int error = 0;
  bool isTemporary; ///< the temporary name is there
};

/// Names that start so are files in the making, or left over by a killed process.
constexpr char kTemporaryPrefix[] = ".tmp-";

} // namespace attnc::cache
