#include "jit/cache_options.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <optional>

namespace attnc::jit {

namespace {

std::string defaultDirectory(const Env& env) {
  // XDG: relative paths must be ignored.
  if (!env.xdgCacheHome.empty() && env.xdgCacheHome[0] == '/') return env.xdgCacheHome + "/attnc";
  if (!env.home.empty() && env.home[0] == '/') return env.home + "/.cache/attnc";
  return {};
}

} // namespace

std::optional<uint64_t> parseBytes(const std::string& text) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc()) return std::nullopt;
  std::string_view suffix(rest, size_t(end - rest));
  int shift = suffix.empty() ? 0 : suffix == "K" ? 10 : suffix == "M" ? 20 : suffix == "G" ? 30 : -1;
  if (shift < 0 || value > (std::numeric_limits<uint64_t>::max() >> shift)) return std::nullopt;
  return value << shift;
}

cache::Options cacheOptionsFrom(const Env& env, LogSink sink) {
  cache::Options options;
  options.log = cache::Log(env.log, std::move(sink));
  options.directory = env.cacheDir.empty() ? defaultDirectory(env) : env.cacheDir;
  options.readOnlyDirectories = splitPaths(env.cacheReadOnlyDirs);
  if (env.cacheMode == "ro")
    options.mode = cache::Mode::ReadOnly;
  else if (env.cacheMode == "off")
    options.mode = cache::Mode::Off;
  else if (!env.cacheMode.empty() && env.cacheMode != "rw")
    options.log.warn(fmt::format("ATTNC_CACHE_MODE is `{}`, none of rw, ro, off; rw is used", env.cacheMode));
  options.mayCompile = env.noCompile.empty() || env.noCompile == "0";
  if (auto bytes = parseBytes(env.cacheMaxBytes))
    options.maxBytes = *bytes;
  else if (!env.cacheMaxBytes.empty())
    options.log.warn(
        fmt::format("ATTNC_CACHE_MAX_BYTES is `{}`, not a size such as 500M or 2G; 1G is used", env.cacheMaxBytes));
  return options;
}

} // namespace attnc::jit
