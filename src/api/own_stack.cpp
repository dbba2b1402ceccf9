#include "api/own_stack.h"

#include <fmt/format.h>

#include <csignal>
#include <cstring>
#include <exception>
#include <pthread.h>

namespace attnc {
namespace {

thread_local bool isOwnStack = false;

struct Job {
  llvm::function_ref<void()> work;
  std::exception_ptr thrown = {};
};

void* runJob(void* argument) {
  Job& job = *static_cast<Job*>(argument);
  isOwnStack = true;
  try {
    job.work();
  } catch (...) {
    job.thrown = std::current_exception();
  }
  return nullptr;
}

/// Returns 0, or the error number.
int startThread(pthread_t& thread, Job& job) {
  pthread_attr_t attributes;
  if (const int failure = pthread_attr_init(&attributes)) return failure;
  // Signal handlers of the caller's process must not run here: the thread inherits the mask that it is made under.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failure = pthread_attr_setstacksize(&attributes, kOwnStackBytes);
  if (!failure) failure = pthread_create(&thread, &attributes, runJob, &job);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return failure;
}

} // namespace

Status runOnOwnStack(llvm::function_ref<void()> work) {
  if (isOwnStack) {
    work();
    return {};
  }
  Job job{work};
  pthread_t thread;
  if (const int failure = startThread(thread, job))
    return Error::environment(fmt::format("cannot start a thread to read a mod: {}", std::strerror(failure)),
                              "raise the limits on threads and memory (ulimit -u, ulimit -v)");
  pthread_join(thread, nullptr);
  if (job.thrown) std::rethrow_exception(job.thrown);
  return {};
}

} // namespace attnc
