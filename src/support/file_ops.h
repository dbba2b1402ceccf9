// The system calls on files, behind an interface so that tests can make any of them fail.
//
// A function returns 0 (or a count) on success and -errno on failure, like system calls; EINTR is retried here. Nothing
// throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

struct stat;

namespace attnc {

class FileOps {
public:
  virtual ~FileOps() = default;
  /// openat() with O_CLOEXEC. Returns the descriptor.
  virtual int open(int directory, const char* path, int flags, unsigned mode);
  virtual int close(int fd);
  virtual int status(int fd, struct stat& out);
  /// Status of the name itself: does not follow a symbolic link.
  virtual int statusAt(int directory, const char* name, struct stat& out);
  virtual int64_t read(int fd, void* buffer, size_t bytes);
  /// pread().
  virtual int64_t readAt(int fd, void* buffer, size_t bytes, int64_t offset);
  virtual int64_t write(int fd, const void* buffer, size_t bytes);
  /// fchmod().
  virtual int setMode(int fd, unsigned mode);
  /// fdatasync().
  virtual int sync(int fd);
  virtual int makeDirectory(int directory, const char* path, unsigned mode);
  /// Both names are in one directory. Replaces the target atomically.
  virtual int rename(int directory, const char* from, const char* to);
  virtual int remove(int directory, const char* name);
  /// flock().
  virtual int lock(int fd, int operation);
  /// Sets the time of last change to now().
  virtual int touch(int fd);
  /// Returns the names in an open directory, without "." and "..".
  virtual int list(int directory, std::vector<std::string>& names);
  /// Wall clock, in seconds since 1970.
  virtual int64_t now();
  virtual void sleep(int milliseconds);
};

/// Closes a descriptor with its scope. A negative value is an errno and owns nothing.
class Fd {
public:
  Fd() = default;
  Fd(FileOps& ops, int fd) : ops(&ops), fd(fd) {}
  Fd(Fd&& other) noexcept : ops(other.ops), fd(other.release()) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd() { reset(); }
  int get() const { return fd; }
  explicit operator bool() const { return fd >= 0; }
  /// Closes now. Returns 0 or the -errno of close(), by which some file systems report a failed write.
  int reset();

private:
  int release();
  FileOps* ops = nullptr;
  int fd = -1;
};

} // namespace attnc
