#include "support/new_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

namespace attnc {

namespace {

// Returns a name unique among processes, hosts and threads: hosts with equal process ids may share a disk.
std::string temporaryName() {
  char host[65] = {};
  if (::gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number)
    number = uint64_t(std::chrono::steady_clock::now().time_since_epoch().count());
  return fmt::format("{}{:.32}-{}-{:016x}", kTemporaryPrefix, host, ::getpid(), number);
}

} // namespace

int writeWhole(FileOps& ops, int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    int64_t count = ops.write(fd, bytes.data(), bytes.size());
    if (count < 0) return int(count);
    if (count == 0) return -EIO;
    bytes.remove_prefix(size_t(count));
  }
  return 0;
}

NewFile::NewFile(FileOps& ops, int directory, unsigned mode)
    : ops(ops), directory(directory), temporary(temporaryName()),
      fd(ops, ops.open(directory, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode)),
      error(std::min(fd.get(), 0)), isTemporary(fd) {}

NewFile::~NewFile() {
  if (!isTemporary) return;
  fd.reset();
  ops.remove(directory, temporary.c_str());
}

void NewFile::setMode(unsigned mode) {
  if (error == 0) attempt(ops.setMode(fd.get(), mode));
}

void NewFile::write(std::string_view bytes) {
  if (error == 0) attempt(writeWhole(ops, fd.get(), bytes));
}

void NewFile::sync() {
  if (error == 0) attempt(ops.sync(fd.get()));
}

int NewFile::publish(const std::string& name) {
  attempt(fd.reset());
  if (error == 0) attempt(ops.rename(directory, temporary.c_str(), name.c_str()));
  if (error == 0) isTemporary = false;
  return error;
}

} // namespace attnc
