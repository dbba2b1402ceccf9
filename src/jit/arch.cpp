#include "jit/arch.h"

#include <fmt/format.h>

#include <charconv>

namespace attnc::jit {

namespace {
constexpr char kPrefix[] = "sm_";
} // namespace

std::string archName(int major, int minor) {
  return fmt::format("{}{}{}{}", kPrefix, major, minor, major >= 9 ? "a" : "");
}

Status checkArchRuns(const std::string& arch, int major, int minor) {
  int number = 0;
  const char* end = arch.data() + arch.size();
  bool known = arch.compare(0, 3, kPrefix) == 0;
  std::string_view suffix;
  if (known) {
    auto [rest, error] = std::from_chars(arch.data() + 3, end, number);
    suffix = {rest, size_t(end - rest)};
    known = error == std::errc() && number >= 10 && (suffix.empty() || suffix == "a" || suffix == "f");
  }
  if (!known) return Error::environment(fmt::format("`{}` is no GPU architecture", arch), "write sm_80, sm_90a, ...");
  bool sameMajor = number / 10 == major;
  bool runs = sameMajor && (suffix == "a" ? number % 10 == minor : number % 10 <= minor);
  if (runs) return {};
  return Error::environment(
      fmt::format("the kernel is compiled for {} and the device is {}", arch, archName(major, minor)),
      "compile for the device's arch");
}

} // namespace attnc::jit
