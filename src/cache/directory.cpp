#include "cache/directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>

namespace attnc::cache {

namespace {

constexpr char kCompilerMagic[] = "attnc compiler 1\n";
constexpr size_t kMaxIdentityBytes = 4096;
constexpr int64_t kTouchSeconds = 3600;
constexpr char kNotPrivate[] = "not private to this user, or not of the expected kind";
constexpr char kTagName[] = "CACHEDIR.TAG";
constexpr char kTagText[] = "Signature: 8a477f597d28d172789f06886806bc55\n"
                            "# Kernels compiled by attnc. They can be removed at any time.\n";

std::string subdirectoryOf(const Digest& key) { return key.hex().substr(0, 2); }
std::string fileNameOf(const Digest& key) { return key.hex().substr(2) + kEntrySuffix; }

} // namespace

Directory::Directory(std::shared_ptr<FileOps> ops, std::string path, Access access, Layer layer, Log log)
    : ops(std::move(ops)), root(std::move(path)), access(access),
      trust(layer == Layer::User ? Trust::Self : Trust::SelfOrRoot), log(std::move(log)) {}

// Returns why the directory itself is refused; empty if it is not to blame.
std::string Directory::whyRefused() const {
  for (const std::string& path : {root, root + "/" + kVersion})
    if (std::string why = whyUnsafe(path, trust); !why.empty()) return (path == root ? "it " : path + " ") + why;
  return {};
}

std::string Directory::reasonOf(int error) const {
  if (error != -EPERM) return std::strerror(-error);
  const std::string why = whyRefused();
  return why.empty() ? kNotPrivate : why;
}

void Directory::tell(const std::string& what, int error) const {
  if (!log.enabled()) return;
  log.line(fmt::format("cache {}: {}: {}", root, what, error == -EPERM ? kNotPrivate : std::strerror(-error)));
  if (const std::string why = error == -EPERM ? whyRefused() : ""; !why.empty())
    log.warn(fmt::format("the kernel cache {} is not used: {}", root, why));
}

Fd Directory::openVersion(IfMissing ifMissing) {
  Fd top = openRoot(*ops, root, trust, ifMissing);
  if (!top) return top;
  Fd version = openBelow(*ops, top, kVersion, trust, IfMissing::Fail);
  if (version || version.get() != -ENOENT || ifMissing == IfMissing::Fail) return version;
  publishFile(*ops, top, kTagName, kTagText);
  return openBelow(*ops, top, kVersion, trust, IfMissing::Create);
}

std::optional<std::string> Directory::find(const Digest& key) {
  ReadFile file;
  auto attempt = [&] {
    Fd version = openVersion(IfMissing::Fail);
    if (!version) return version.get();
    Fd directory = openBelow(*ops, version, subdirectoryOf(key), trust, IfMissing::Fail);
    if (!directory) return directory.get();
    return readFile(*ops, directory, fileNameOf(key), trust, kMaxEntryBytes, file);
  };
  int error = attempt();
  if (error == -ESTALE) error = attempt(); // replaced on a network file system while it was opened
  if (error == -ENOENT) return std::nullopt;
  std::optional<Entry> entry;
  if (error == 0) entry = decodeEntry(file.bytes);
  if (!entry || entry->key != key) {
    ++counts.rejected;
    tell("entry " + key.hex() + " refused", error < 0 ? error : -EBADMSG);
    return std::nullopt;
  }
  ++counts.hits;
  touchIfOld(file);
  return std::move(entry->bytes);
}

void Directory::touchIfOld(ReadFile& file) {
  if (writable() && ops->now() - file.modified > kTouchSeconds) ops->touch(file.fd.get());
}

int Directory::publishIn(const std::string& subdirectory, const std::string& name, const std::string& bytes) {
  Fd version = openVersion(IfMissing::Create);
  if (!version) return version.get();
  Fd directory = openBelow(*ops, version, subdirectory, trust, IfMissing::Create);
  if (!directory) return directory.get();
  return publishFile(*ops, directory, name, bytes);
}

uint64_t Directory::publish(const Entry& entry) {
  if (!writable()) return 0;
  std::string bytes = encodeEntry(entry);
  int error =
      bytes.size() > kMaxEntryBytes ? -EFBIG : publishIn(subdirectoryOf(entry.key), fileNameOf(entry.key), bytes);
  if (error == 0) {
    ++counts.published;
    return bytes.size();
  }
  ++counts.publishFailures;
  tell("entry " + entry.key.hex() + " not stored", error);
  if (error != -EPERM && error != -EFBIG)
    log.warn(fmt::format("the kernel cache {} stores nothing: {}", root, std::strerror(-error)));
  return 0;
}

KeyLock::~KeyLock() {
  if (fd) ops->lock(fd.get(), LOCK_UN);
}

KeyLock Directory::lock(const Digest& key, int timeoutMs) {
  auto failed = [&](int error) {
    ++counts.lockFailures;
    tell("compiling without a lock", error);
    return KeyLock();
  };
  if (!writable()) return {};
  Fd version = openVersion(IfMissing::Create);
  if (!version) return failed(version.get());
  Fd top = openRoot(*ops, root, trust, IfMissing::Fail);
  if (!top) return failed(top.get());
  Fd locks = openBelow(*ops, top, "locks", trust, IfMissing::Create);
  if (!locks) return failed(locks.get());
  Fd file(*ops, ops->open(locks.get(), subdirectoryOf(key).c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!file) return failed(file.get());
  // Polls, because a blocking flock() has no time limit and the holder may be stopped forever.
  for (int waited = 0, step = 1;; waited += step, step = std::min(2 * step, 20)) {
    int error = ops->lock(file.get(), LOCK_EX | LOCK_NB);
    if (error == 0) return KeyLock(*ops, std::move(file));
    if (error != -EWOULDBLOCK) return failed(error);
    if (waited >= timeoutMs) return failed(-ETIMEDOUT);
    ops->sleep(step);
  }
}

std::optional<std::string> Directory::readIdentity(const Fd& compilers, const std::string& name) {
  ReadFile file;
  if (readFile(*ops, compilers, name, trust, kMaxIdentityBytes, file) < 0) return std::nullopt;
  // "attnc compiler 1\n", 64 digits of the rest's SHA-256, "\n", identity
  const std::string& bytes = file.bytes;
  size_t magic = std::strlen(kCompilerMagic), textBegin = magic + 64 + 1;
  if (bytes.size() <= textBegin || bytes.compare(0, magic, kCompilerMagic) != 0) return std::nullopt;
  std::string identity = bytes.substr(textBegin);
  if (bytes.compare(magic, 65, sha256(identity).hex() + "\n") != 0) return std::nullopt;
  return identity;
}

std::optional<std::string> Directory::compilerIdentity(const std::string& stamp) {
  Fd version = openVersion(IfMissing::Fail);
  if (!version) return std::nullopt;
  Fd compilers = openBelow(*ops, version, kCompilers, trust, IfMissing::Fail);
  if (!compilers) return std::nullopt;
  return readIdentity(compilers, sha256(stamp).hex());
}

void Directory::rememberCompiler(const std::string& stamp, const std::string& identity) {
  if (!writable()) return;
  std::string bytes = kCompilerMagic + sha256(identity).hex() + "\n" + identity;
  if (bytes.size() > kMaxIdentityBytes) return;
  int error = publishIn(kCompilers, sha256(stamp).hex(), bytes);
  if (error < 0) tell("identity of the compiler not stored", error);
}

std::optional<TunedFile> Directory::findTuned(const Digest& key) {
  Fd version = openVersion(IfMissing::Fail);
  if (!version) return std::nullopt;
  Fd tuned = openBelow(*ops, version, kTuned, trust, IfMissing::Fail);
  if (!tuned) return std::nullopt;
  ReadFile file;
  const std::string name = key.hex() + kTunedSuffix;
  const int error = readFile(*ops, tuned, name, trust, kMaxTunedBytes, file);
  if (error < 0) {
    if (error != -ENOENT) tell("tuned choice " + name + " refused", error);
    return std::nullopt;
  }
  touchIfOld(file);
  return TunedFile{std::move(file.bytes), fmt::format("{}/{}/{}/{}", root, kVersion, kTuned, name)};
}

std::string Directory::publishTuned(const Digest& key, const std::string& text) {
  if (!writable()) return {};
  const std::string name = key.hex() + kTunedSuffix;
  const int error = text.size() > kMaxTunedBytes ? -EFBIG : publishIn(kTuned, name, text);
  if (error == 0) return fmt::format("{}/{}/{}/{}", root, kVersion, kTuned, name);
  tell("tuned choice " + name + " not stored", error);
  return {};
}

std::vector<std::string> Directory::compilerIdentities() {
  std::vector<std::string> names, identities;
  Fd version = openVersion(IfMissing::Fail);
  if (!version) return identities;
  Fd compilers = openBelow(*ops, version, kCompilers, trust, IfMissing::Fail);
  if (!compilers || ops->list(compilers.get(), names) < 0) return identities;
  for (const std::string& name : names)
    if (auto identity = readIdentity(compilers, name))
      if (std::find(identities.begin(), identities.end(), *identity) == identities.end())
        identities.push_back(*identity);
  std::sort(identities.begin(), identities.end(), std::greater<>());
  return identities;
}

} // namespace attnc::cache
