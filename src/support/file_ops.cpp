#include "support/file_ops.h"

#include <cerrno>
#include <chrono>
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace attnc {

namespace {
// Returns the result of a system call as a value or -errno. Retries while signals interrupt it.
template <class Call> auto retried(Call call) -> decltype(call()) {
  for (;;) {
    auto result = call();
    if (result >= 0) return result;
    if (errno != EINTR) return -errno;
  }
}
} // namespace

int FileOps::open(int directory, const char* path, int flags, unsigned mode) {
  return retried([&] { return ::openat(directory, path, flags | O_CLOEXEC, mode); });
}

// Not retried: Linux has released the descriptor even if close() was interrupted.
int FileOps::close(int fd) { return ::close(fd) == 0 || errno == EINTR ? 0 : -errno; }

int FileOps::status(int fd, struct stat& out) {
  return retried([&] { return ::fstat(fd, &out); });
}

int FileOps::statusAt(int directory, const char* name, struct stat& out) {
  return retried([&] { return ::fstatat(directory, name, &out, AT_SYMLINK_NOFOLLOW); });
}

int64_t FileOps::read(int fd, void* buffer, size_t bytes) {
  return retried([&] { return ::read(fd, buffer, bytes); });
}

int64_t FileOps::readAt(int fd, void* buffer, size_t bytes, int64_t offset) {
  return retried([&] { return ::pread(fd, buffer, bytes, offset); });
}

int64_t FileOps::write(int fd, const void* buffer, size_t bytes) {
  return retried([&] { return ::write(fd, buffer, bytes); });
}

int FileOps::setMode(int fd, unsigned mode) {
  return retried([&] { return ::fchmod(fd, mode); });
}

int FileOps::sync(int fd) {
  return retried([&] { return ::fdatasync(fd); });
}

int FileOps::makeDirectory(int directory, const char* path, unsigned mode) {
  return retried([&] { return ::mkdirat(directory, path, mode); });
}

int FileOps::rename(int directory, const char* from, const char* to) {
  return retried([&] { return ::renameat(directory, from, directory, to); });
}

int FileOps::remove(int directory, const char* name) {
  return retried([&] { return ::unlinkat(directory, name, 0); });
}

int FileOps::lock(int fd, int operation) {
  return retried([&] { return ::flock(fd, operation); });
}

int FileOps::touch(int fd) {
  struct timespec times[2] = {{0, UTIME_OMIT}, {time_t(now()), 0}};
  return retried([&] { return ::futimens(fd, times); });
}

int FileOps::list(int directory, std::vector<std::string>& names) {
  // Uses a second descriptor: closedir() closes the one given to fdopendir(), and the position must not be shared.
  int copy = open(directory, ".", O_RDONLY | O_DIRECTORY, 0);
  if (copy < 0) return copy;
  DIR* stream = ::fdopendir(copy);
  if (!stream) {
    int error = -errno;
    ::close(copy);
    return error;
  }
  errno = 0;
  while (const dirent* entry = ::readdir(stream)) {
    std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(std::move(name));
  }
  int error = -errno;
  ::closedir(stream);
  return error;
}

int64_t FileOps::now() {
  using namespace std::chrono;
  return duration_cast<seconds>(system_clock::now().time_since_epoch()).count();
}

void FileOps::sleep(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    reset();
    ops = other.ops;
    fd = other.release();
  }
  return *this;
}

int Fd::reset() {
  int owned = release();
  return owned >= 0 ? ops->close(owned) : 0;
}

int Fd::release() {
  int owned = fd;
  fd = -1;
  return owned;
}

} // namespace attnc
