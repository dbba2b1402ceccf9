// How much walks over modules do, for tests that hold work to growing in step with a mod.
#pragma once

#include <atomic>
#include <cstdint>

namespace attnc::ir {

/// Values, outputs and names that walks of this process have looked at. Every walk over a whole module or over its outputs
/// adds to it.
inline std::atomic<uint64_t> visits = 0;

} // namespace attnc::ir
