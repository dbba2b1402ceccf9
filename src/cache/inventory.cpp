#include "cache/inventory.h"
#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <tuple>

namespace attnc::cache {

namespace {

/// More than the head of any entry: names and identities have some hundred bytes.
constexpr size_t kHeadRead = 8192;

/// Returns the key, in hexadecimal, that a file's place stands for.
std::string keyOfPlace(const FoundFile& found) {
  return found.subdirectory + found.name.substr(0, found.name.size() - (sizeof kEntrySuffix - 1));
}

} // namespace

std::string placeOf(const FoundFile& found) {
  return std::string(kVersion) + "/" + (found.subdirectory == "." ? "" : found.subdirectory + "/") + found.name;
}

Expected<Fd> Inventory::open() {
  Fd version = directory.openVersion(IfMissing::Fail);
  if (version || version.get() == -ENOENT) return version;
  return Error::environment(
      fmt::format("the kernel cache {} cannot be read: {}", directory.path(), directory.reasonOf(version.get())));
}

std::optional<ListedEntry> Inventory::headOf(const Fd& version, const FoundFile& found) {
  FileOps& ops = *directory.ops;
  ListedEntry listed{placeOf(found), uint64_t(found.status.st_size), found.status.st_mtim.tv_sec, {}};
  Fd folder = openBelow(ops, version, found.subdirectory, directory.trust, IfMissing::Fail);
  if (!folder) return std::nullopt;
  Fd file(ops, ops.open(folder.get(), found.name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0));
  if (file.get() == -ENOENT) return std::nullopt;
  std::string begin(kHeadRead, '\0');
  const int64_t count = file ? ops.readAt(file.get(), begin.data(), begin.size(), 0) : 0;
  begin.resize(size_t(std::max<int64_t>(count, 0)));
  listed.head = decodeEntryHead(begin);
  return listed;
}

Expected<std::vector<ListedEntry>> Inventory::list() {
  ATTNC_TRY_AS(version, open());
  std::vector<ListedEntry> all;
  if (!*version) return all;
  for (const FoundFile& found : scan(*directory.ops, *version, directory.trust).entries)
    if (auto listed = headOf(*version, found)) all.push_back(*std::move(listed));
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return std::tie(a.lastUsed, a.file) < std::tie(b.lastUsed, b.file); });
  return all;
}

Expected<std::vector<ListedChoice>> Inventory::tuned() {
  ATTNC_TRY_AS(version, open());
  std::vector<ListedChoice> all;
  if (!*version) return all;
  FileOps& ops = *directory.ops;
  Fd folder = openBelow(ops, *version, kTuned, directory.trust, IfMissing::Fail);
  for (const FoundFile& found : scanTuned(ops, *version, directory.trust)) {
    ReadFile file;
    const int error = readFile(ops, folder, found.name, directory.trust, kMaxTunedBytes, file);
    if (error == -ENOENT) continue;
    ListedChoice listed{placeOf(found), uint64_t(found.status.st_size), found.status.st_mtim.tv_sec, {}};
    if (error == 0) listed.choice = decodeTuned(file.bytes);
    all.push_back(std::move(listed));
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return std::tie(a.lastUsed, a.file) < std::tie(b.lastUsed, b.file); });
  return all;
}

/// Returns why the file is damaged; empty if it is intact or has vanished.
std::string Inventory::whyTunedDamaged(const Fd& folder, const FoundFile& found) {
  ReadFile file;
  const int error = readFile(*directory.ops, folder, found.name, directory.trust, kMaxTunedBytes, file);
  if (error < 0) return error == -ENOENT ? "" : directory.reasonOf(error);
  const auto choice = decodeTuned(file.bytes);
  if (!choice) return "it is no choice of a tile";
  return digestOf(choice->key).hex() + kTunedSuffix == found.name ? "" : "it is the choice of another name";
}

/// Returns why the file is damaged; empty if it is intact or has vanished.
std::string Inventory::whyIdentityDamaged(const Fd& folder, const FoundFile& found) {
  struct stat now;
  if (directory.readIdentity(folder, found.name)) return "";
  return directory.ops->statusAt(folder.get(), found.name.c_str(), now) < 0 ? "" : "it is no identity of a compiler";
}

void Inventory::verify(const Fd& version, const FoundFile& found, Verification& result) {
  const auto damaged = [&](std::string why) { result.damaged.push_back({placeOf(found), std::move(why)}); };
  FileOps& ops = *directory.ops;
  ++result.files;
  Fd folder = openBelow(ops, version, found.subdirectory, directory.trust, IfMissing::Fail);
  if (folder.get() == -ENOENT) return;
  if (!folder) return damaged(directory.reasonOf(folder.get()));
  if (found.subdirectory == kCompilers) {
    if (std::string why = whyIdentityDamaged(folder, found); !why.empty()) damaged(std::move(why));
    return;
  }
  if (found.subdirectory == kTuned) {
    if (std::string why = whyTunedDamaged(folder, found); !why.empty()) damaged(std::move(why));
    return;
  }
  ReadFile file;
  const int error = readFile(ops, folder, found.name, directory.trust, kMaxEntryBytes, file);
  if (error == -ENOENT) return;
  if (error < 0) return damaged(directory.reasonOf(error));
  if (const auto format = entryFormat(file.bytes); format && *format != kEntryFormat) {
    ++result.foreign;
    return;
  }
  const std::optional<Entry> entry = decodeEntry(file.bytes);
  if (!entry) return damaged("it is cut off or changed: its checksum does not fit");
  if (entry->key.hex() != keyOfPlace(found)) damaged("it is the entry of another name");
}

Expected<Verification> Inventory::verify() {
  ATTNC_TRY_AS(version, open());
  Verification result;
  if (!*version) return result;
  FileOps& ops = *directory.ops;
  std::vector<FoundFile> files = scan(ops, *version, directory.trust).entries;
  for (FoundFile& found : scanCompilers(ops, *version, directory.trust)) files.push_back(std::move(found));
  for (FoundFile& found : scanTuned(ops, *version, directory.trust)) files.push_back(std::move(found));
  for (const FoundFile& found : files) verify(*version, found, result);
  return result;
}

int64_t Inventory::compilers() {
  auto version = open();
  if (!version || !*version) return 0;
  return int64_t(scanCompilers(*directory.ops, *version, directory.trust).size());
}

} // namespace attnc::cache
