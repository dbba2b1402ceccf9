#include "jit/nvrtc_library.h"

#include "cache/fork_guard.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <sys/stat.h>

#ifndef ATTNC_NVRTC_HINTS
#define ATTNC_NVRTC_HINTS ""
#endif

namespace attnc::jit {

namespace {

constexpr char kSoname[] = "libnvrtc.so.13";
constexpr char kBuiltinsPrefix[] = "libnvrtc-builtins.so.13";

std::string inDirectory(const std::string& pathOrDirectory) {
  std::error_code ignored;
  if (std::filesystem::is_directory(pathOrDirectory, ignored)) return pathOrDirectory + "/" + kSoname;
  return pathOrDirectory;
}

std::vector<std::string> searchPath(const Env& env) {
  std::vector<std::string> directories = splitPaths(env.ldLibraryPath);
  if (!env.cudaHome.empty()) directories.push_back(env.cudaHome + "/lib64");
  for (std::string& hint : splitPaths(ATTNC_NVRTC_HINTS)) directories.push_back(std::move(hint));
  for (const char* usual :
       {"/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"})
    directories.emplace_back(usual);
  std::vector<std::string> paths;
  for (const std::string& directory : directories) paths.push_back(directory + "/" + kSoname);
  paths.emplace_back(kSoname);
  return paths;
}

// NVRTC opens its companion library by soname, which fails outside of ld.so's directories unless it is open already.
void openBuiltinsBeside(const std::string& library) {
  std::error_code error;
  auto directory = std::filesystem::path(library).parent_path();
  if (directory.empty()) return;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string why;
    if (entry->path().filename().string().rfind(kBuiltinsPrefix, 0) == 0) DynamicLibrary::open(entry->path(), why);
  }
}

Expected<NvrtcApi> bindFunctions(const DynamicLibrary& library) {
  NvrtcApi api;
  api.path = library.path();
#define X(function)                                                                                                    \
  api.function = reinterpret_cast<decltype(api.function)>(library.symbol(#function));                                  \
  if (!api.function)                                                                                                   \
    return Error::environment(fmt::format("{} has no function `{}`", api.path, #function), "install NVRTC of CUDA "    \
                                                                                           "13");
  ATTNC_NVRTC_FUNCTIONS(X)
#undef X
  return api;
}

// NV_NVVM_VERSION as each library of this process read it when it was loaded, by the stamp of the file. Guarded by
// lockForkSafe(); never destroyed.
std::map<std::string, std::string>& versionsAtLoad() {
  static auto* versions = new std::map<std::string, std::string>;
  return *versions;
}

std::optional<std::string> versionAtLoad(const std::string& path) {
  auto stamp = fileStamp(path);
  if (!stamp) return std::nullopt;
  auto lock = cache::lockForkSafe();
  auto found = versionsAtLoad().find(*stamp);
  return found == versionsAtLoad().end() ? std::nullopt : std::optional(found->second);
}

void rememberLoad(const std::string& path, const std::string& version) {
  auto stamp = fileStamp(path);
  if (!stamp) return;
  auto lock = cache::lockForkSafe();
  versionsAtLoad().emplace(*stamp, version);
}

} // namespace

std::optional<std::string> fileStamp(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return fmt::format("{}:{}:{}:{}.{:09}", status.st_dev, status.st_ino, status.st_size, status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec);
}

NvrtcLocator::NvrtcLocator(std::string explicitPath, const Env& env) : nvvmVersion(env.nvvmVersion) {
  if (explicitPath.empty()) explicitPath = env.nvrtc;
  mayShare = explicitPath.empty();
  candidates = mayShare ? searchPath(env) : std::vector{inDirectory(explicitPath)};
}

std::optional<std::string> NvrtcLocator::likelyPath() const {
  if (mayShare)
    if (auto library = DynamicLibrary::alreadyOpen(kSoname)) return library->path();
  for (const std::string& candidate : candidates)
    if (candidate.find('/') != std::string::npos && fileStamp(candidate)) return candidate;
  return std::nullopt;
}

std::optional<std::string> NvrtcLocator::stamp() const {
  auto path = likelyPath();
  return path ? stampOf(*path) : std::nullopt;
}

std::optional<std::string> NvrtcLocator::stampOf(const std::string& path) const {
  auto file = fileStamp(path);
  if (!file) return std::nullopt;
  return fmt::format("{} NV_NVVM_VERSION={}", *file, nvvmVersionOf(path));
}

std::string NvrtcLocator::nvvmVersionOf(const std::string& path) const {
  return versionAtLoad(path).value_or(nvvmVersion);
}

Expected<NvrtcApi> NvrtcLocator::open() const {
  const std::string now = Env::read().nvvmVersion;
  const auto path = likelyPath();
  if (now != nvvmVersion && !(path && versionAtLoad(*path)))
    return Error::environment(
        fmt::format("NV_NVVM_VERSION is `{}`, and was `{}` when the compiler was made", now, nvvmVersion),
        "set or unset it before that");
  auto api = load();
  if (api) rememberLoad(api->path, now);
  return api;
}

Expected<NvrtcApi> NvrtcLocator::load() const {
  if (mayShare)
    if (auto library = DynamicLibrary::alreadyOpen(kSoname)) return bindFunctions(*library);
  std::string looked;
  for (const std::string& candidate : candidates) {
    std::string why;
    bool isPath = candidate.find('/') != std::string::npos;
    if (isPath && fileStamp(candidate)) openBuiltinsBeside(candidate);
    if (auto library = DynamicLibrary::open(candidate, why)) return bindFunctions(*library);
    looked += "\n  " + (isPath ? why : candidate + " (ld.so): " + why);
  }
  return Error::environment("NVRTC, the CUDA run-time compiler, was not found; looked for:" + looked,
                            "install the CUDA 13 toolkit or the package nvidia-cuda-nvrtc, or set ATTNC_NVRTC to the "
                            "path of libnvrtc.so.13");
}

} // namespace attnc::jit
