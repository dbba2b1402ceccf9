#include "cache/log.h"

#include "cache/fork_guard.h"
#include "support/readable.h"

#include <fmt/format.h>

#include <chrono>
#include <fcntl.h>
#include <unistd.h>

namespace attnc::cache {

void Log::line(std::string_view text) const {
  if (enabled()) write(LogLevel::Event, text);
}

void Log::warn(const std::string& text) const {
  if (!enabled()) return;
  {
    auto lock = lockForkSafe();
    if (!warned->insert(text).second) return;
  }
  write(LogLevel::Warning, text);
}

void Log::write(LogLevel level, std::string_view said) const {
  const std::string text = readable(said);
  if (sink) sink(level, text);
  if (target.empty()) return;
  using namespace std::chrono;
  double seconds = duration<double>(system_clock::now().time_since_epoch()).count();
  std::string full =
      fmt::format("{:.3f} attnc[{}] {}{}\n", seconds, ::getpid(), level == LogLevel::Warning ? "warning: " : "", text);
  int fd = target == "-" ? STDERR_FILENO : ::open(target.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return;
  [[maybe_unused]] ssize_t written = ::write(fd, full.data(), full.size());
  if (fd != STDERR_FILENO) ::close(fd);
}

} // namespace attnc::cache
