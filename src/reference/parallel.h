// A loop over independent items on all cores.
#pragma once

#include <cstdint>
#include <functional>

namespace attnc::reference {

/// Calls `body(begin, end)` for consecutive parts that make up [0, count), from several threads at once. `body` must
/// write to places of its own, so that the result does not depend on the number of threads. If it throws, no further
/// part is begun, and one of its exceptions comes out of this call once all threads are done.
void parallelFor(int64_t count, const std::function<void(int64_t begin, int64_t end)>& body);

} // namespace attnc::reference
