// One directory of the disk cache.
//
//   ROOT/CACHEDIR.TAG                  tells backup programs to skip it
//   ROOT/locks/00 ... ff               flock()ed while a value with this first byte of the key is compiled; never removed
//   ROOT/v1/ab/cdef....attnc           an entry (entry.h); the name is the key in hexadecimal
//   ROOT/v1/compilers/HASH             identity of the compiler whose stamp has this hash
//   ROOT/v1/tuned/HASH.json            a measured choice of tiles (tuned.h); the name is the digest of its key
//   ROOT/v1/prune.lock, prune.stamp, published    see prune.h
//
// In: keys. Out: verified values, or a miss. Every failure is a miss or a failed publish; the counters and the log tell
// them apart, with one warning where the directory itself is to blame. Directories are opened anew for each operation,
// so that the cache may be removed while processes run. A copy of such a directory serves other machines as a read-only
// layer. flock() works across the hosts of an NFS mount if the mount has locks; if not, hosts compile a kernel once
// each.
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

/// Held: this process is the one to compile. Not held: compile all the same, perhaps twice.
class KeyLock {
public:
  KeyLock() = default;
  KeyLock(FileOps& ops, Fd fd) : ops(&ops), fd(std::move(fd)) {}
  KeyLock(KeyLock&&) = default;
  KeyLock& operator=(KeyLock&&) = default;
  /// Unlocks explicitly: close() alone would not, while a forked child still has the descriptor. The end of the process
  /// unlocks as well.
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
    System, ///< files of root are accepted as well; never written
  };

  Directory(std::shared_ptr<FileOps> ops, std::string path, Access access, Layer layer, Log log);

  /// The value of this key; nullopt: a miss. Marks the entry as used, at most once an hour.
  std::optional<std::string> find(const Digest& key);

  /// Makes an entry visible, whole, to all processes. The bytes of its file; 0: it was not stored, and the log says why.
  uint64_t publish(const Entry& entry);

  /// Waits until no other process compiles a kernel whose key has this first byte; at most `timeoutMs`.
  KeyLock lock(const Digest& key, int timeoutMs);

  /// Identity of the compiler with this stamp, as remembered by an earlier process.
  std::optional<std::string> compilerIdentity(const std::string& stamp);
  void rememberCompiler(const std::string& stamp, const std::string& identity);
  /// All remembered identities, each once.
  std::vector<std::string> compilerIdentities();

  /// The file of a choice; nullopt: a miss. Marks it as used, at most once an hour.
  std::optional<TunedFile> findTuned(const Digest& key);
  /// Makes it visible, whole, to all processes; of several writers the last one's stays. The path; empty: it was not
  /// stored, and the log says why.
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
  /// Why an operation on the directory fails, for people.
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

/// The directory, below the root, of all that this version reads and writes.
constexpr char kVersion[] = "v1";

/// Ends the name of every entry.
constexpr char kEntrySuffix[] = ".attnc";

/// Subdirectory of the identities of compilers.
constexpr char kCompilers[] = "compilers";

/// Subdirectory of measured choices, and what ends their names.
constexpr char kTuned[] = "tuned";
constexpr char kTunedSuffix[] = ".json";
constexpr size_t kMaxTunedBytes = 64 * 1024;

} // namespace attnc::cache
