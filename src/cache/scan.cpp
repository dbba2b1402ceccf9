#include "cache/scan.h"

#include "cache/directory.h"
#include "support/new_file.h"

#include <string_view>

namespace attnc::cache {

namespace {

bool isSubdirectory(const std::string& name) {
  if (name == kCompilers || name == kTuned) return true;
  return name.size() == 2 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool isTemporary(std::string_view name) { return name.substr(0, sizeof kTemporaryPrefix - 1) == kTemporaryPrefix; }

bool isEntry(std::string_view name) {
  constexpr size_t kLength = sizeof kEntrySuffix - 1;
  return name.size() >= kLength && name.substr(name.size() - kLength) == kEntrySuffix;
}

/// Adds the file of this name, unless it has vanished.
void addFile(FileOps& ops, const Fd& fd, const std::string& subdirectory, std::string name,
             std::vector<FoundFile>& files) {
  FoundFile found{subdirectory, std::move(name), {}};
  if (ops.statusAt(fd.get(), found.name.c_str(), found.status) == 0) files.push_back(std::move(found));
}

void look(FileOps& ops, const Fd& fd, const std::string& subdirectory, Scan& result) {
  std::vector<std::string> names;
  ops.list(fd.get(), names);
  for (std::string& name : names) {
    if (isTemporary(name))
      addFile(ops, fd, subdirectory, std::move(name), result.temporaries);
    else if (isEntry(name))
      addFile(ops, fd, subdirectory, std::move(name), result.entries);
  }
}

/// Returns all files except those that are being written.
std::vector<FoundFile> filesIn(const char* subdirectory, FileOps& ops, const Fd& version, Trust trust) {
  Fd fd = openBelow(ops, version, subdirectory, trust, IfMissing::Fail);
  std::vector<std::string> names;
  std::vector<FoundFile> files;
  if (!fd || ops.list(fd.get(), names) < 0) return files;
  for (std::string& name : names)
    if (!isTemporary(name)) addFile(ops, fd, subdirectory, std::move(name), files);
  return files;
}

} // namespace

Scan scan(FileOps& ops, const Fd& version, Trust trust) {
  Scan result;
  look(ops, version, ".", result);
  std::vector<std::string> names;
  ops.list(version.get(), names);
  for (const std::string& name : names) {
    if (!isSubdirectory(name)) continue;
    if (Fd fd = openBelow(ops, version, name, trust, IfMissing::Fail)) look(ops, fd, name, result);
  }
  return result;
}

std::vector<FoundFile> scanCompilers(FileOps& ops, const Fd& version, Trust trust) {
  return filesIn(kCompilers, ops, version, trust);
}

std::vector<FoundFile> scanTuned(FileOps& ops, const Fd& version, Trust trust) {
  return filesIn(kTuned, ops, version, trust);
}

} // namespace attnc::cache
