// A loop over independent items on all cores.
#pragma once

#include <cstdint>
#include <functional>

namespace attnc::reference {

/// Calls `body(begin, end)` for consecutive parts that make up [0, count), from several threads at once. `body` does
/// not throw and must write to places of its own, so that the result does not depend on the number of threads.
void parallelFor(int64_t count, const std::function<void(int64_t begin, int64_t end)>& body);

} // namespace attnc::reference
