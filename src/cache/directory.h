// One directory of the disk cache.
//
//   ROOT/CACHEDIR.TAG                  tells backup programs to skip it
//   ROOT/locks/00 ... ff               flock()ed while a value with this first byte of the key is compiled; never
//   removed ROOT/v1/ab/cdef....attnc           an entry (entry.h); its name is the key in hexadecimal
//   ROOT/v1/compilers/HASH             identity of the compiler whose stamp has this hash
//   ROOT/v1/tuned/HASH.json            a measured choice of tiles (tuned.h); its name is the digest of its key
//   ROOT/v1/prune.lock, prune.stamp, published    see prune.h
//
// In: keys. Out: verified values, or a miss. Every failure is a miss or a failed publish. The counters and the log tell
// them apart, with one warning if the directory itself is to blame. Directories are opened anew for each operation, so
// the cache may be removed while processes run. A copy of the directory serves other machines as a read-only layer.
// flock() works across the hosts of an NFS mount if the mount has locks; if not, hosts compile a kernel once each.
#pragma once

#include "cache/entry.h"
#include "cache/log.h"
#include "cache/safe_files.h"
#include "cache/tuned.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace attnc::cache {

/// Held: this process is the one to compile. Not held: the process compiles anyway, maybe for a second time.
class KeyLock {
public:
  KeyLock() = default;
  KeyLock(FileOps& ops, Fd fd) : ops(&ops), fd(std::move(fd)) {}
  KeyLock(KeyLock&&) = default;
  KeyLock& operator=(KeyLock&&) = default;
  /// Unlocks explicitly: close() would not, while a forked child still has the descriptor. The end of the process also
  /// unlocks.
  ~KeyLock();
  bool held() const { return bool(fd); }

private:
  FileOps* ops = nullptr;
  Fd fd;
};

/// Thread-safe.
class Directory {
public:
  enum class Access { ReadWrite, ReadOnly };
  enum class Layer {
    User,   ///< the user's own; files of others are refused
    System, ///< files of root are also accepted; never written
  };

  Directory(std::shared_ptr<FileOps> ops, std::string path, Access access, Layer layer, Log log);

  /// Returns the value of this key; nullopt: a miss. Marks the entry as used, at most once an hour.
  std::optional<std::string> find(const Digest& key);

  /// Makes an entry visible to all processes, atomically. Returns the bytes of its file; 0: not stored, and the log has
  /// the reason.
  uint64_t publish(const Entry& entry);

  /// Waits until no other process compiles a kernel whose key has this first byte, for at most `timeoutMs`.
  KeyLock lock(const Digest& key, int timeoutMs);

  /// Returns the identity of the compiler with this stamp, as remembered by an earlier process.
  std::optional<std::string> compilerIdentity(const std::string& stamp);
  void rememberCompiler(const std::string& stamp, const std::string& identity);
  /// Returns all remembered identities, each once.
  std::vector<std::string> compilerIdentities();

  /// Returns the file of a choice; nullopt: a miss. Marks it as used, at most once an hour.
  std::optional<TunedFile> findTuned(const Digest& key);
  /// Makes a choice visible to all processes, atomically; the last of several writers wins. Returns the path. Empty:
  /// not stored, and the log has the reason.
  std::string publishTuned(const Digest& key, const std::string& text);

  const std::string& path() const { return root; }
  bool writable() const { return access == Access::ReadWrite; }

  struct Counters {
    std::atomic<int64_t> hits{0}, rejected{0}, published{0}, publishFailures{0}, lockFailures{0};
  };
  const Counters& counters() const { return counts; }

private:
  friend class Inventory;
  friend class Pruner;
  Fd openVersion(IfMissing ifMissing);
  int publishIn(const std::string& subdirectory, const std::string& name, const std::string& bytes);
  /// Returns why an operation on the directory failed, for people.
  std::string reasonOf(int error) const;
  std::optional<std::string> readIdentity(const Fd& compilers, const std::string& name);
  void touchIfOld(ReadFile& file);
  void tell(const std::string& what, int error) const;
  std::string whyRefused() const;

  std::shared_ptr<FileOps> ops;
  std::string root;
  Access access;
  Trust trust;
  Log log;
  Counters counts;
};

/// The directory below the root with everything that this version reads and writes.
constexpr char kVersion[] = "v1";

/// The suffix of every entry's name.
constexpr char kEntrySuffix[] = ".attnc";

/// The subdirectory with the identities of compilers.
constexpr char kCompilers[] = "compilers";

/// The subdirectory with measured choices, and the suffix of their names.
constexpr char kTuned[] = "tuned";
constexpr char kTunedSuffix[] = ".json";
constexpr size_t kMaxTunedBytes = 64 * 1024;

} // namespace attnc::cache
