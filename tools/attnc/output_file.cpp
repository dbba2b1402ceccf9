#include "output_file.h"

#include "support/new_file.h"
#include "text.h"

#include <fmt/format.h>

#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace attnc::cli {
namespace {

namespace fs = std::filesystem;

/// `error` is -errno.
Error cannotWrite(const std::string& path, int error) {
  return Error::environment(fmt::format("cannot write {}: {}", inQuotes(path), std::strerror(-error)));
}

/// Returns 0 or -errno.
int writePieces(FileOps& ops, int descriptor, const std::vector<std::string_view>& pieces) {
  for (std::string_view piece : pieces)
    if (int error = writeWhole(ops, descriptor, piece); error < 0) return error;
  return 0;
}

/// Returns 0 or -errno. The new file has the permissions of the one that it replaces.
int replaceFile(const fs::path& path, const std::vector<std::string_view>& pieces) {
  FileOps ops;
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  const Fd directory(ops, ops.open(AT_FDCWD, folder.c_str(), O_PATH | O_DIRECTORY, 0));
  if (!directory) return directory.get();
  const std::string name = path.filename().string();
  struct stat old;
  const bool replaces = ops.statusAt(directory.get(), name.c_str(), old) == 0;
  NewFile file(ops, directory.get(), replaces ? old.st_mode & 0777 : 0666);
  if (replaces) file.setMode(old.st_mode & 0777);
  for (std::string_view piece : pieces) file.write(piece);
  return file.publish(name);
}

} // namespace

Status writeWholeFile(const std::string& path, const std::vector<std::string_view>& pieces) {
  FileOps ops;
  if (path == "-") {
    if (int error = writePieces(ops, STDOUT_FILENO, pieces); error < 0) return cannotWrite("<stdout>", error);
    return {};
  }
  std::error_code ignored;
  const auto status = fs::status(path, ignored);
  if (fs::is_directory(status))
    return Error::environment(fmt::format("cannot write {}: it is a directory", inQuotes(path)));
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    Fd device(ops, ops.open(AT_FDCWD, path.c_str(), O_WRONLY, 0));
    int error = device ? writePieces(ops, device.get(), pieces) : device.get();
    if (int closed = device.reset(); error == 0) error = closed;
    if (error < 0) return cannotWrite(path, error);
    return {};
  }
  // Follows a symbolic link: replaces its target, not the link.
  fs::path target = path;
  if (fs::is_symlink(fs::symlink_status(path, ignored))) {
    auto resolved = fs::weakly_canonical(path, ignored);
    if (!ignored) target = resolved;
  }
  if (int error = replaceFile(target, pieces); error < 0) return cannotWrite(path, error);
  return {};
}

} // namespace attnc::cli
