#include "jit/arch.h"

#include <fmt/format.h>

#include <charconv>

namespace attnc::jit {

namespace {
constexpr std::string_view kPrefix = "sm_";
} // namespace

std::string archName(int major, int minor) {
  return fmt::format("{}{}{}{}", kPrefix, major, minor, major >= 9 ? "a" : "");
}

std::optional<ArchName> parseArchName(std::string_view text) {
  if (!text.starts_with(kPrefix)) return std::nullopt;
  text.remove_prefix(kPrefix.size());
  ArchName name;
  auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), name.number);
  text.remove_prefix(size_t(rest - text.data()));
  if (error != std::errc() || name.number < 10) return std::nullopt;
  if (text.empty()) return name;
  name.suffix = text[0];
  if (text.size() > 1 || (name.suffix != 'a' && name.suffix != 'f')) return std::nullopt;
  return name;
}

Status checkArchRuns(const std::string& arch, int major, int minor) {
  const std::optional<ArchName> name = parseArchName(arch);
  if (!name) return Error::environment(fmt::format("`{}` is no GPU architecture", arch), "write sm_80, sm_90a, ...");
  const int ofMinor = name->number % 10;
  const bool runs = name->number / 10 == major && (name->suffix == 'a' ? ofMinor == minor : ofMinor <= minor);
  if (runs) return {};
  return Error::environment(
      fmt::format("the kernel is compiled for {} and the device is {}", arch, archName(major, minor)),
      "compile for the device's arch");
}

} // namespace attnc::jit
