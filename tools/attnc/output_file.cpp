#include "output_file.h"

#include "text.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace attnc::cli {
namespace {

Error cannotWrite(const std::string& path) {
  return Error::environment(fmt::format("cannot write {}: {}", inQuotes(path), std::strerror(errno)));
}

/// Writes everything, in spite of short writes; false with errno set on an error.
bool writeAll(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(size_t(written));
  }
  return true;
}

/// Writes and closes; false with errno set on an error.
bool writeAndClose(int descriptor, const std::vector<std::string_view>& pieces) {
  for (std::string_view piece : pieces) {
    if (writeAll(descriptor, piece)) continue;
    int reason = errno;
    ::close(descriptor);
    errno = reason;
    return false;
  }
  return ::close(descriptor) == 0;
}

/// The permissions a new file gets: those of the file it replaces, else what the umask leaves.
mode_t permissions(const std::string& path) {
  struct stat old;
  if (::stat(path.c_str(), &old) == 0) return old.st_mode & 0777;
  mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

Status replaceFile(const std::string& path, const std::vector<std::string_view>& pieces) {
  std::string temporary = path + ".XXXXXX";
  int descriptor = ::mkstemp(temporary.data());
  if (descriptor < 0) return cannotWrite(path);
  bool written = ::fchmod(descriptor, permissions(path)) == 0;
  if (written)
    written = writeAndClose(descriptor, pieces);
  else
    ::close(descriptor);
  if (written && ::rename(temporary.c_str(), path.c_str()) == 0) return {};
  Error error = cannotWrite(path);
  ::unlink(temporary.c_str());
  return error;
}

} // namespace

Status writeWholeFile(const std::string& path, const std::vector<std::string_view>& pieces) {
  if (path == "-") {
    for (std::string_view piece : pieces)
      if (!writeAll(STDOUT_FILENO, piece)) return cannotWrite("<stdout>");
    return {};
  }
  std::error_code ignored;
  auto status = std::filesystem::status(path, ignored);
  if (std::filesystem::is_directory(status))
    return Error::environment(fmt::format("cannot write {}: it is a directory", inQuotes(path)));
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor < 0 || !writeAndClose(descriptor, pieces)) return cannotWrite(path);
    return {};
  }
  // Through a symbolic link, the file that it points to is replaced, not the link.
  std::filesystem::path target = path;
  if (std::filesystem::is_symlink(std::filesystem::symlink_status(path, ignored))) {
    auto resolved = std::filesystem::weakly_canonical(path, ignored);
    if (!ignored) target = resolved;
  }
  return replaceFile(target.string(), pieces);
}

} // namespace attnc::cli
