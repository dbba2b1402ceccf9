#include "jit/dump.h"

#include "jit/nvrtc.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

namespace attnc::jit {

namespace fs = std::filesystem;

namespace {

// Returns a name from a source as a path below `folder`; empty if it would be outside.
fs::path insideOf(const fs::path& folder, const std::string& name) {
  fs::path relative = fs::path(name).lexically_normal();
  if (relative.empty() || relative.is_absolute() || *relative.begin() == "..") return {};
  return folder / relative;
}

bool writeFile(const fs::path& path, std::string_view bytes) {
  if (path.empty()) return false;
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), std::streamsize(bytes.size()));
  return bool(out.flush());
}

} // namespace

void dumpSource(const std::string& directory, const cache::Digest& content, const KernelSource& source,
                const CompiledKernel* result, const std::string& failure, const cache::Log& log) {
  if (directory.empty()) return;
  std::string stem = fs::path(source.templateName).stem().string();
  fs::path folder = fs::path(directory) / fmt::format("{}-{}-{}", stem, source.arch, content.hex().substr(0, 12));
  bool good = writeFile(insideOf(folder, source.templateName), source.text);
  for (const auto& [name, text] : source.headers) good = writeFile(insideOf(folder, name), text) && good;
  std::string options;
  for (const std::string& option : nvrtcOptions(source)) options += option + "\n";
  if (result && result->order) options += fmt::format("-DATTNC_ORDER={}\n", result->order);
  good = writeFile(folder / "options.txt", options) && good;
  good = writeFile(folder / "log.txt", result ? result->log : failure) && good;
  if (result) {
    good = writeFile(folder / "kernel.ptx", result->ptx) && good;
    good = writeFile(folder / "kernel.cubin", {result->cubin.data(), result->cubin.size()}) && good;
  }
  log.line(fmt::format("{} {}", good ? "dumped" : "could not dump all of", folder.string()));
}

} // namespace attnc::jit
