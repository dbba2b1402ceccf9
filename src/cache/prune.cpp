#include "cache/prune.h"

#include "cache/new_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>

namespace attnc::cache {

namespace {

constexpr int64_t kIntervalSeconds = 3600;
constexpr int64_t kTemporarySeconds = 3600;
constexpr size_t kMaxCompilers = 64;
constexpr char kStamp[] = "prune.stamp";
constexpr char kPublished[] = "published";
constexpr size_t kRecordBytes = 16;
constexpr size_t kMaxPublishedBytes = 4096 * kRecordBytes; // beyond this, a scan is cheaper than adding up the lines

/// A line of `published`. Lines have one length, so that a torn append shows.
std::string recordOf(uint64_t bytes) { return fmt::format("{:>15}\n", std::min<uint64_t>(bytes, 999'999'999'999'999)); }

/// The sum of such lines; nullopt if they are malformed.
std::optional<uint64_t> sumOf(std::string_view records) {
  if (records.size() % kRecordBytes) return std::nullopt;
  uint64_t sum = 0;
  for (; !records.empty(); records.remove_prefix(kRecordBytes)) {
    std::string_view digits = records.substr(0, kRecordBytes - 1);
    digits.remove_prefix(std::min(digits.find_first_not_of(' '), digits.size()));
    uint64_t bytes = 0;
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bytes);
    if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
    sum += bytes;
  }
  return sum;
}

bool isSubdirectory(const std::string& name) {
  if (name == kCompilers) return true;
  return name.size() == 2 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool startsWith(const std::string& name, const char* prefix) {
  return name.compare(0, std::strlen(prefix), prefix) == 0;
}

bool endsWith(const std::string& name, const char* suffix) {
  size_t length = std::strlen(suffix);
  return name.size() >= length && name.compare(name.size() - length, length, suffix) == 0;
}

bool isUnchanged(const struct stat& then, const struct stat& now) {
  return then.st_ino == now.st_ino && then.st_size == now.st_size && then.st_mtim.tv_sec == now.st_mtim.tv_sec &&
         then.st_mtim.tv_nsec == now.st_mtim.tv_nsec;
}

bool isOlder(const struct stat& a, const struct stat& b) {
  if (a.st_mtim.tv_sec != b.st_mtim.tv_sec) return a.st_mtim.tv_sec < b.st_mtim.tv_sec;
  return a.st_mtim.tv_nsec < b.st_mtim.tv_nsec;
}

} // namespace

struct Pruner::Found {
  std::string subdirectory, name;
  struct stat status;
};

void Pruner::afterPublish(uint64_t publishedBytes) {
  Fd version = directory.openVersion(IfMissing::Fail);
  if (!version) return;
  if (dueBySize(version, publishedBytes) || dueByClock(version)) prune();
}

bool Pruner::dueByClock(const Fd& version) {
  FileOps& ops = *directory.ops;
  struct stat status;
  if (ops.statusAt(version.get(), kStamp, status) < 0) return true;
  int64_t age = ops.now() - status.st_mtim.tv_sec;
  return age > kIntervalSeconds || age < -kIntervalSeconds;
}

// Whether the total is above the cap, or is missing, damaged or too long to add up.
bool Pruner::dueBySize(const Fd& version, uint64_t publishedBytes) {
  FileOps& ops = *directory.ops;
  Fd sum(ops, ops.open(version.get(), kPublished, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0));
  const std::string record = recordOf(publishedBytes);
  if (!sum || ops.write(sum.get(), record.data(), record.size()) != int64_t(record.size())) return true;
  ReadFile file;
  if (readFile(ops, version, kPublished, directory.trust, kMaxPublishedBytes, file) < 0) return true;
  std::optional<uint64_t> bytes = sumOf(file.bytes);
  return !bytes || *bytes > maxBytes;
}

void Pruner::look(const Fd& fd, const std::string& subdirectory, std::vector<Found>& entries,
                       PruneReport& report) {
  FileOps& ops = *directory.ops;
  std::vector<std::string> names;
  ops.list(fd.get(), names);
  for (std::string& name : names) {
    Found found{subdirectory, std::move(name), {}};
    bool temporary = startsWith(found.name, kTemporaryPrefix);
    if (!temporary && !endsWith(found.name, kEntrySuffix)) continue;
    if (ops.statusAt(fd.get(), found.name.c_str(), found.status) < 0) continue;
    if (temporary) {
      bool old = ops.now() - found.status.st_mtim.tv_sec > kTemporarySeconds;
      if (old && ops.remove(fd.get(), found.name.c_str()) == 0) ++report.temporaries;
    } else {
      ++report.entries;
      report.bytes += found.status.st_size;
      entries.push_back(std::move(found));
    }
  }
}

void Pruner::scan(const Fd& version, std::vector<Found>& entries, PruneReport& report) {
  FileOps& ops = *directory.ops;
  look(version, ".", entries, report);
  std::vector<std::string> names;
  ops.list(version.get(), names);
  for (const std::string& name : names) {
    if (!isSubdirectory(name)) continue;
    if (Fd fd = openBelow(ops, version, name, directory.trust, IfMissing::Fail)) look(fd, name, entries, report);
  }
}

// Down to nine tenths of the cap, so that the next publish does not prune again.
void Pruner::removeOldest(const Fd& version, std::vector<Found>& entries, PruneReport& report) {
  if (uint64_t(report.bytes) <= maxBytes) return;
  FileOps& ops = *directory.ops;
  std::sort(entries.begin(), entries.end(), [](const Found& a, const Found& b) { return isOlder(a.status, b.status); });
  for (const Found& found : entries) {
    if (uint64_t(report.bytes) <= maxBytes / 10 * 9) return;
    Fd fd = openBelow(ops, version, found.subdirectory, directory.trust, IfMissing::Fail);
    if (!fd) continue;
    struct stat now;
    int error = ops.statusAt(fd.get(), found.name.c_str(), now);
    if (error == 0 && !isUnchanged(found.status, now)) continue;
    if (error == 0) error = ops.remove(fd.get(), found.name.c_str());
    if (error == 0) ++report.removed;
    if (error == 0 || error == -ENOENT) {
      --report.entries;
      report.bytes -= found.status.st_size;
    }
  }
}

void Pruner::forgetCompilers(const Fd& version) {
  FileOps& ops = *directory.ops;
  Fd fd = openBelow(ops, version, kCompilers, directory.trust, IfMissing::Fail);
  std::vector<std::string> names;
  if (!fd || ops.list(fd.get(), names) < 0 || names.size() <= kMaxCompilers) return;
  std::vector<Found> files;
  for (std::string& name : names) {
    Found found{kCompilers, std::move(name), {}};
    if (ops.statusAt(fd.get(), found.name.c_str(), found.status) == 0) files.push_back(std::move(found));
  }
  std::sort(files.begin(), files.end(), [](const Found& a, const Found& b) { return isOlder(b.status, a.status); });
  for (size_t i = kMaxCompilers; i < files.size(); ++i)
    ops.remove(fd.get(), files[i].name.c_str());
}

PruneReport Pruner::prune() {
  PruneReport report;
  if (!directory.writable()) return report;
  FileOps& ops = *directory.ops;
  Fd version = directory.openVersion(IfMissing::Fail);
  if (!version) return report;
  Fd lock(ops, ops.open(version.get(), "prune.lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!lock || ops.lock(lock.get(), LOCK_EX | LOCK_NB) < 0) return report;
  publishFile(ops, version, kStamp, "");
  // Whatever others publish from here on is added to the new total, even if the scan below sees it as well.
  publishFile(ops, version, kPublished, "");
  report.ran = true;
  std::vector<Found> entries;
  scan(version, entries, report);
  removeOldest(version, entries, report);
  Fd sum(ops, ops.open(version.get(), kPublished, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0));
  const std::string record = recordOf(uint64_t(report.bytes));
  // Without its first line the total would be too small. A missing file makes the next publish prune again.
  if (!sum || ops.write(sum.get(), record.data(), record.size()) != int64_t(record.size()))
    ops.remove(version.get(), kPublished);
  forgetCompilers(version);
  if (report.removed || report.temporaries)
    directory.log.line(fmt::format("cache {}: pruned {} entries and {} temporary files; {} bytes remain",
                                   directory.path(), report.removed, report.temporaries, report.bytes));
  return report;
}

} // namespace attnc::cache
