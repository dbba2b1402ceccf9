// Keeps the cache usable after fork().
//
// A child forked while another thread compiles inherits NVRTC's locks as they were held, and hangs at its first
// compilation. A child forked while another thread holds a lock of the cache would hang there as well. So:
//   - the short critical sections of the cache share one process-wide mutex, which fork() takes and releases;
//   - compilations are counted, and CompileScope refuses a child that was forked during one, instead of hanging.
// Memory and disk hits work in every child. The state is process-wide because fork() is.
#pragma once

#include <cstdint>
#include <mutex>

namespace attnc::cache {

/// Locks the process-wide mutex. Only for critical sections of microseconds that call no callbacks.
std::unique_lock<std::mutex> lockForkSafe();

/// Returns the number of forks between this process and the first one. Work of other threads from an earlier generation
/// never finishes. Call only under lockForkSafe().
uint64_t forkGeneration();

/// Marks a compilation in progress during its lifetime.
class CompileScope {
public:
  CompileScope();
  ~CompileScope();
  CompileScope(const CompileScope&) = delete;
  CompileScope& operator=(const CompileScope&) = delete;
  /// False if this process was forked during a compilation and must not compile.
  explicit operator bool() const { return allowed; }

private:
  bool allowed;
};

} // namespace attnc::cache
