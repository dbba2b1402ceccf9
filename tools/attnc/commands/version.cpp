#include "commands/version.h"

#include "attnc/toolchain.h"
#include "attnc/version.h"

#include <fmt/format.h>
#include <llvm/Config/llvm-config.h>

namespace attnc::cli {
namespace {

std::string nvrtcText() {
  const auto found = findNvrtc();
  if (found) return fmt::format("NVRTC {}, {}\n", nvrtcBuild(found->identity), found->path);
  const Error& error = found.error();
  std::string message = error.message.substr(0, error.message.find("; looked for"));
  return fmt::format("NVRTC not usable: {} ({})\n", message, error.remedy);
}

} // namespace

std::string nvrtcBuild(const std::string& identity) {
  auto after = [&](const std::string& label) {
    size_t at = identity.find(label);
    if (at == std::string::npos) return std::string();
    at += label.size();
    return identity.substr(at, identity.find_first_of(" |", at) - at);
  };
  std::string version = after(", V"), build = after("Build ID: ");
  if (version.empty()) version = identity.substr(0, identity.find(' '));
  return build.empty() ? version : fmt::format("{} ({})", version, build);
}

const char* llvmVersion() { return LLVM_VERSION_STRING; }

std::string versionText() { return "attnc " ATTNC_VERSION "\n" + nvrtcText() + "LLVM " LLVM_VERSION_STRING "\n"; }

} // namespace attnc::cli
