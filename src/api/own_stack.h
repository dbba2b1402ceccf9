// Runs recursive work whatever stack the caller's thread has: parsing, tracing, passes, code generation.
#pragma once

#include "attnc/error.h"

#include <llvm/ADT/STLFunctionalExtras.h>

#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>

namespace attnc {

/// Stack of the thread that onOwnStack() makes. Memory is taken only for the part in use.
inline constexpr size_t kOwnStackBytes = size_t(8) << 20;

/// Runs `work` on a thread with kOwnStackBytes of stack, and waits for it. If the calling thread already is one, runs
/// it there. Passes exceptions of `work` on; signals go to other threads. Error: no thread can be made.
Status runOnOwnStack(llvm::function_ref<void()> work);

/// The same for work that returns an Expected or a Status.
template <class Work> std::invoke_result_t<Work> onOwnStack(Work&& work) {
  std::optional<std::invoke_result_t<Work>> result;
  if (Status ran = runOnOwnStack([&] { result.emplace(work()); }); !ran) return std::move(ran).error();
  return *std::move(result);
}

} // namespace attnc
