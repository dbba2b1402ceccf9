// A line on stderr for work that takes longer than a second: what is being done, and for how long. Only on terminals.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace attnc::cli {

/// Shows its line while it lives, and removes it at the end. Shows nothing if the work ends before the first second.
/// `what`: "compiling".
class Progress {
public:
  /// Writes to stderr, if that is a terminal, once a second.
  explicit Progress(std::string what);
  /// Writes to a terminal, once per `every`.
  Progress(std::string what, int terminal, std::chrono::milliseconds every);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

private:
  void show();

  const std::string what;
  const int terminal; ///< -1: none
  const std::chrono::milliseconds every;
  std::mutex mutex;
  std::condition_variable done;
  bool isDone = false;
  std::thread thread;
};

/// Returns work(), and shows what is being done meanwhile.
template <class Work> auto withProgress(const char* what, Work work) {
  const Progress progress(what);
  return work();
}

/// Removes a line from stderr before other lines are written there; it reappears at its next update. Any thread.
void clearProgress();

} // namespace attnc::cli
