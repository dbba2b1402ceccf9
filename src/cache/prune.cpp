#include "cache/prune.h"

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
constexpr size_t kMaxPublishedBytes = 4096 * kRecordBytes; // beyond this, a scan is cheaper than summing the lines

/// Returns a line of `published`. All lines have equal length, so a torn append is detectable.
std::string recordOf(uint64_t bytes) { return fmt::format("{:>15}\n", std::min<uint64_t>(bytes, 999'999'999'999'999)); }

/// Returns the sum of the lines; nullopt if they are malformed.
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

bool isUnchanged(const struct stat& then, const struct stat& now) {
  return then.st_ino == now.st_ino && then.st_size == now.st_size && then.st_mtim.tv_sec == now.st_mtim.tv_sec &&
         then.st_mtim.tv_nsec == now.st_mtim.tv_nsec;
}

bool isOlder(const struct stat& a, const struct stat& b) {
  if (a.st_mtim.tv_sec != b.st_mtim.tv_sec) return a.st_mtim.tv_sec < b.st_mtim.tv_sec;
  return a.st_mtim.tv_nsec < b.st_mtim.tv_nsec;
}

} // namespace

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

// Whether the total exceeds the cap, or is missing, damaged or too long to sum.
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

// Keeps young ones: processes are still writing them.
void Pruner::removeTemporaries(const Fd& version, const std::vector<FoundFile>& files, const PruneLimits& limits,
                               PruneReport& report) {
  FileOps& ops = *directory.ops;
  for (const FoundFile& found : files) {
    if (ops.now() - found.status.st_mtim.tv_sec <= kTemporarySeconds) continue;
    Fd fd = openBelow(ops, version, found.subdirectory, directory.trust, IfMissing::Fail);
    if (fd && (limits.dryRun || ops.remove(fd.get(), found.name.c_str()) == 0)) ++report.temporaries;
  }
}

void Pruner::removeEntries(const Fd& version, std::vector<FoundFile> files, const PruneLimits& limits,
                           PruneReport& report) {
  FileOps& ops = *directory.ops;
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return isOlder(a.status, b.status); });
  const bool isAbove = uint64_t(report.bytes) > limits.maxBytes;
  for (FoundFile& found : files) {
    const bool isUnused = limits.unusedFor && ops.now() - found.status.st_mtim.tv_sec > *limits.unusedFor;
    if (!isUnused && !(isAbove && uint64_t(report.bytes) > limits.downTo)) return;
    Fd fd = openBelow(ops, version, found.subdirectory, directory.trust, IfMissing::Fail);
    if (!fd) continue;
    struct stat now;
    int error = ops.statusAt(fd.get(), found.name.c_str(), now);
    if (error == 0 && !isUnchanged(found.status, now)) continue;
    if (error == 0 && !limits.dryRun) error = ops.remove(fd.get(), found.name.c_str());
    if (error != 0 && error != -ENOENT) continue;
    --report.entries;
    report.bytes -= found.status.st_size;
    if (error != 0) continue;
    ++report.removed;
    report.removedFiles.push_back(std::move(found));
  }
}

void Pruner::forgetCompilers(const Fd& version, const PruneLimits& limits, PruneReport& report) {
  FileOps& ops = *directory.ops;
  const size_t keep = limits.forgetsCompilers ? 0 : kMaxCompilers;
  std::vector<FoundFile> files = scanCompilers(ops, version, directory.trust);
  if (files.size() <= keep) return;
  Fd fd = openBelow(ops, version, kCompilers, directory.trust, IfMissing::Fail);
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return isOlder(b.status, a.status); });
  for (size_t i = keep; i < files.size(); ++i)
    if (limits.dryRun || ops.remove(fd.get(), files[i].name.c_str()) == 0) ++report.compilers;
}

// Choices are small, and measuring again takes a person's time: no limit of size removes them.
void Pruner::forgetTuned(const Fd& version, const PruneLimits& limits, PruneReport& report) {
  if (!limits.forgetsTuned && !limits.unusedFor) return;
  FileOps& ops = *directory.ops;
  Fd fd = openBelow(ops, version, kTuned, directory.trust, IfMissing::Fail);
  for (const FoundFile& found : scanTuned(ops, version, directory.trust)) {
    if (!limits.forgetsTuned && ops.now() - found.status.st_mtim.tv_sec <= *limits.unusedFor) continue;
    if (limits.dryRun || ops.remove(fd.get(), found.name.c_str()) == 0) ++report.tuned;
  }
}

PruneReport Pruner::prune(const PruneLimits& limits) {
  PruneReport report;
  if (!directory.writable()) return report;
  FileOps& ops = *directory.ops;
  Fd version = directory.openVersion(IfMissing::Fail);
  if (!version) return report;
  Fd lock;
  if (!limits.dryRun) {
    lock = Fd(ops, ops.open(version.get(), "prune.lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0600));
    if (!lock || ops.lock(lock.get(), limits.waits ? LOCK_EX : LOCK_EX | LOCK_NB) < 0) return report;
    publishFile(ops, version, kStamp, "");
    // From here on, other processes' publishes add to the new total, even if the scan below also sees them.
    publishFile(ops, version, kPublished, "");
  }
  report.ran = true;
  Scan found = scan(ops, version, directory.trust);
  report.entries = int64_t(found.entries.size());
  for (const FoundFile& file : found.entries) report.bytes += file.status.st_size;
  removeTemporaries(version, found.temporaries, limits, report);
  removeEntries(version, std::move(found.entries), limits, report);
  forgetCompilers(version, limits, report);
  forgetTuned(version, limits, report);
  if (limits.dryRun) return report;
  Fd sum(ops, ops.open(version.get(), kPublished, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0));
  const std::string record = recordOf(uint64_t(report.bytes));
  // Without its first line the total would be too small. If the file is missing, the next publish prunes again.
  if (!sum || ops.write(sum.get(), record.data(), record.size()) != int64_t(record.size()))
    ops.remove(version.get(), kPublished);
  if (report.removed || report.temporaries)
    directory.log.line(fmt::format("cache {}: pruned {} entries and {} temporary files; {} bytes remain",
                                   directory.path(), report.removed, report.temporaries, report.bytes));
  return report;
}

} // namespace attnc::cache
