// Forked children, for tests of state that processes share.
#pragma once

#include <cerrno>
#include <functional>
#include <sys/wait.h>
#include <unistd.h>

namespace attnc::test {

/// Runs `body` in a forked child. Its return value is the exit status.
inline pid_t startChild(const std::function<int()>& body) {
  pid_t child = ::fork();
  if (child != 0) return child;
  ::_exit(body());
}

/// Returns the exit status of a child, or -1 if a signal ended it.
inline int waitFor(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

} // namespace attnc::test
