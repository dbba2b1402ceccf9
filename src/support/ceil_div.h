// Division that rounds up.
#pragma once

#include <cstdint>

namespace attnc {

/// Returns how many parts of `b` hold `a`. Preconditions: a >= 0, b > 0.
constexpr int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

} // namespace attnc
