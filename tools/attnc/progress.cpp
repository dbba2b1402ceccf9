#include "progress.h"

#include <fmt/format.h>

#include <atomic>
#include <unistd.h>

namespace attnc::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<bool> isShown = false; // whether a line is on stderr

/// Ignores write errors.
void put(int terminal, const std::string& text) {
  if (::write(terminal, text.data(), text.size()) < 0) return;
}

constexpr const char* kClear = "\r\033[K";

} // namespace

Progress::Progress(std::string what)
    : Progress(std::move(what), ::isatty(STDERR_FILENO) ? STDERR_FILENO : -1, std::chrono::seconds(1)) {}

Progress::Progress(std::string work, int terminal, std::chrono::milliseconds every)
    : what(std::move(work)), terminal(terminal), every(every) {
  if (terminal >= 0) thread = std::thread([this] { show(); });
}

Progress::~Progress() {
  {
    std::lock_guard lock(mutex);
    isDone = true;
  }
  done.notify_all();
  if (thread.joinable()) thread.join();
}

void Progress::show() {
  const Clock::time_point start = Clock::now();
  std::unique_lock lock(mutex);
  bool wasShown = false;
  for (Clock::time_point next = start + every; !done.wait_until(lock, next, [this] { return isDone; }); next += every) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - start).count();
    put(terminal, fmt::format("{}attnc: {}: {} s", kClear, what, seconds));
    wasShown = true;
    if (terminal == STDERR_FILENO) isShown = true;
  }
  if (!wasShown) return;
  put(terminal, kClear);
  if (terminal == STDERR_FILENO) isShown = false;
}

void clearProgress() {
  if (isShown.exchange(false)) put(STDERR_FILENO, kClear);
}

} // namespace attnc::cli
