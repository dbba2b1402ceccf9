// The pack that is searched although nobody names it.
#include "jit/packs.h"

#include <fmt/format.h>

#include <dlfcn.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace attnc::jit {

namespace {

constexpr char kDefaultPackName[] = "kernels.attncpack";

/// Returns the file that holds this code: libattnc.so, or the program that it is linked into. Empty if unknown.
std::filesystem::path ownFile() {
  Dl_info info;
  if (::dladdr(reinterpret_cast<const void*>(&findDefaultPack), &info) == 0 || !info.dli_fname) return {};
  // The loader knows a program by what it was called as. A relative path may lead elsewhere by now.
  std::error_code error;
  const bool isAbsolute = info.dli_fname[0] == '/';
  const std::filesystem::path file = std::filesystem::canonical(isAbsolute ? info.dli_fname : "/proc/self/exe", error);
  return error ? std::filesystem::path() : file;
}

/// Whether the pack is only written by who decides anyway what this process does: its user, root, and who may write the
/// library. Installers such as pip give the group write permission to both, where umask says so.
bool isPrivatePack(const struct stat& pack) {
  struct stat own = {};
  const bool hasOwn = ::stat(ownFile().c_str(), &own) == 0;
  const bool isOfGroup = hasOwn && own.st_gid == pack.st_gid && own.st_mode & S_IWGRP;
  if (pack.st_mode & (isOfGroup ? S_IWOTH : S_IWGRP | S_IWOTH)) return false;
  return (hasOwn && own.st_uid == pack.st_uid) || pack.st_uid == 0 || pack.st_uid == ::geteuid();
}

} // namespace

DefaultPack findDefaultPack(const Env& env) {
  if (env.defaultPack == "0") return {};
  if (!env.defaultPack.empty()) return {env.defaultPack, false};
  const std::filesystem::path folder = ownFile().parent_path();
  if (folder.empty()) return {};
  // A wheel's library is next to share/, a Debian one in lib/x86_64-linux-gnu.
  for (const char* place : {".", "share/attnc", "../share/attnc", "../../share/attnc"}) {
    const std::filesystem::path path = (folder / place / kDefaultPackName).lexically_normal();
    if (::access(path.c_str(), F_OK) == 0) return {path.string(), true};
  }
  return {};
}

Expected<std::shared_ptr<const cache::Pack>> openDefaultPack(const DefaultPack& found, const std::string& maker) {
  auto pack = openMadeBy(maker, found.path);
  if (!pack) return pack;
  if (found.isFound && !isPrivatePack((*pack)->status()))
    return Error::environment(fmt::format("the pack {} belongs to another user, or others may write it", found.path),
                              "chmod go-w it, or name it with ATTNC_DEFAULT_PACK");
  return pack;
}

} // namespace attnc::jit
