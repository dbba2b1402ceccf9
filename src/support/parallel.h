// Loops over independent items on all cores.
//
// LLVM's thread pool ends the process if a thread cannot be started or a body throws.
#pragma once

#include <cstdint>
#include <functional>

namespace attnc {

/// Calls `body(begin, end)` for consecutive parts of [0, count), from several threads at once. `body` must write to
/// disjoint places, so that the result does not depend on the number of threads. If it throws, no further part starts,
/// and one of its exceptions leaves this call after all threads have finished.
void parallelFor(int64_t count, const std::function<void(int64_t begin, int64_t end)>& body);

/// The same for items that take long: each is a part of its own.
void parallelForEach(int64_t count, const std::function<void(int64_t i)>& body);

} // namespace attnc
