// What survives a fork() and what does not.
//
// A child that was forked while another thread compiled inherits NVRTC's locks as they were held, and hangs at its
// first compile. A child forked while another thread held a lock of the cache would hang there as well. So:
//   - the short critical sections of the cache share one process-wide mutex, which fork() takes and releases;
//   - compiles are counted, and a child that was born during one is refused by CompileScope instead of hanging.
// Memory and disk hits work in every child. The state is process-wide because fork() is.
#pragma once

#include <cstdint>
#include <mutex>

namespace attnc::cache {

/// Holds the process-wide mutex. Only for critical sections of microseconds that call no callbacks.
std::unique_lock<std::mutex> lockForkSafe();

/// Number of forks between this process and the first one. What another thread was doing in an earlier generation
/// will never finish. To be called under lockForkSafe().
uint64_t forkGeneration();

/// Marks a compile in progress for its lifetime.
class CompileScope {
public:
  CompileScope();
  ~CompileScope();
  CompileScope(const CompileScope&) = delete;
  CompileScope& operator=(const CompileScope&) = delete;
  /// False: this process was forked during a compile and must not compile.
  explicit operator bool() const { return allowed; }

private:
  bool allowed;
};

} // namespace attnc::cache
