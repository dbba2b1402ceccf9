#include "cache/fork_guard.h"

#include <pthread.h>

namespace attnc::cache {

namespace {

struct ForkState {
  std::mutex mutex;
  int activeCompiles = 0;
  bool forkedDuringCompile = false;
  uint64_t generation = 0;
};

void beforeFork();
void afterForkInParent();
void afterForkInChild();

// Never destroyed: a detached thread may still compile while the process exits.
ForkState& forkState() {
  static ForkState* state = [] {
    auto* fresh = new ForkState;
    pthread_atfork(beforeFork, afterForkInParent, afterForkInChild);
    return fresh;
  }();
  return *state;
}

void beforeFork() { forkState().mutex.lock(); }

void afterForkInParent() { forkState().mutex.unlock(); }

void afterForkInChild() {
  ForkState& state = forkState();
  state.forkedDuringCompile = state.forkedDuringCompile || state.activeCompiles > 0;
  state.activeCompiles = 0;
  ++state.generation;
  state.mutex.unlock();
}

} // namespace

std::unique_lock<std::mutex> lockForkSafe() { return std::unique_lock(forkState().mutex); }

uint64_t forkGeneration() { return forkState().generation; }

CompileScope::CompileScope() {
  auto lock = lockForkSafe();
  allowed = !forkState().forkedDuringCompile;
  if (allowed) ++forkState().activeCompiles;
}

CompileScope::~CompileScope() {
  auto lock = lockForkSafe();
  // In a child that the compiling thread itself forked, the count has restarted.
  if (allowed && forkState().activeCompiles > 0) --forkState().activeCompiles;
}

} // namespace attnc::cache
