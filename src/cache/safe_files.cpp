#include "cache/safe_files.h"

#include "support/new_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace attnc::cache {

namespace {

bool isPrivate(const struct stat& status, Trust trust) {
  bool owner = status.st_uid == ::geteuid() || (trust == Trust::SelfOrRoot && status.st_uid == 0);
  return owner && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// Opens without creating. Refuses anything but a private directory.
Fd openExisting(FileOps& ops, int parent, const std::string& path, int flags, Trust trust) {
  Fd fd(ops, ops.open(parent, path.c_str(), O_RDONLY | O_DIRECTORY | flags, 0));
  if (!fd) return fd;
  struct stat status;
  if (int error = ops.status(fd.get(), status); error < 0) return Fd(ops, error);
  if (!isPrivate(status, trust)) return Fd(ops, -EPERM);
  return fd;
}

int makeParents(FileOps& ops, const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    int error = ops.makeDirectory(AT_FDCWD, path.substr(0, slash).c_str(), 0700);
    // Parents may exist and be unwritable, or be on a read-only file system; only the last directory matters.
    if (error < 0 && error != -EEXIST && error != -EACCES && error != -EROFS) return error;
  }
  return 0;
}

} // namespace

std::string whyUnsafe(const std::string& path, Trust trust) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0 || isPrivate(status, trust)) return {};
  if (status.st_mode & (S_IWGRP | S_IWOTH))
    return fmt::format("is writable by others (mode {:04o}); chmod go-w makes it private", status.st_mode & 07777);
  return fmt::format("belongs to user {}, not to user {}", status.st_uid, ::geteuid());
}

Fd openRoot(FileOps& ops, const std::string& path, Trust trust, IfMissing ifMissing) {
  Fd fd = openExisting(ops, AT_FDCWD, path, 0, trust);
  if (fd || fd.get() != -ENOENT || ifMissing == IfMissing::Fail) return fd;
  if (int error = makeParents(ops, path); error < 0) return Fd(ops, error);
  if (int error = ops.makeDirectory(AT_FDCWD, path.c_str(), 0700); error < 0 && error != -EEXIST) return Fd(ops, error);
  return openExisting(ops, AT_FDCWD, path, 0, trust);
}

Fd openBelow(FileOps& ops, const Fd& parent, const std::string& name, Trust trust, IfMissing ifMissing) {
  Fd fd = openExisting(ops, parent.get(), name, O_NOFOLLOW, trust);
  if (fd || fd.get() != -ENOENT || ifMissing == IfMissing::Fail) return fd;
  int error = ops.makeDirectory(parent.get(), name.c_str(), 0700);
  if (error < 0 && error != -EEXIST) return Fd(ops, error);
  return openExisting(ops, parent.get(), name, O_NOFOLLOW, trust);
}

int readFile(FileOps& ops, const Fd& directory, const std::string& name, Trust trust, size_t maxBytes, ReadFile& out) {
  out.fd = Fd(ops, ops.open(directory.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0));
  if (!out.fd) return out.fd.get() == -ELOOP ? -EPERM : out.fd.get();
  struct stat status;
  if (int error = ops.status(out.fd.get(), status); error < 0) return error;
  if (!S_ISREG(status.st_mode) || !isPrivate(status, trust)) return -EPERM;
  if (status.st_size < 0 || size_t(status.st_size) > maxBytes) return -EFBIG;
  out.modified = status.st_mtim.tv_sec;
  out.bytes.resize(size_t(status.st_size));
  for (size_t done = 0; done < out.bytes.size();) {
    int64_t count = ops.read(out.fd.get(), out.bytes.data() + done, out.bytes.size() - done);
    if (count < 0) return int(count);
    if (count == 0) out.bytes.resize(done); // shorter than a moment ago: the checksum will detect it
    done += size_t(count);
  }
  return 0;
}

int publishFile(FileOps& ops, const Fd& directory, const std::string& name, const std::string& bytes) {
  NewFile file(ops, directory.get(), 0600);
  file.write(bytes);
  file.sync();
  return file.publish(name);
}

} // namespace attnc::cache
