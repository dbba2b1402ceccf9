// A line on stderr for what takes longer than a second: what is being done, and for how long. On terminals alone.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace attnc::cli {

/// Shows its line while it lives, and takes it away when it ends; nothing if that comes first. `what`: "compiling".
class Progress {
public:
  /// On stderr, if that is a terminal, after a second and each second from then on.
  explicit Progress(std::string what);
  /// On a terminal; `every`: in place of a second.
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

/// Takes a line of stderr away before other lines are written there; it comes back when it is due. Any thread.
void clearProgress();

} // namespace attnc::cli
