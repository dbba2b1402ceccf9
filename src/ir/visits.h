// Counts the work of walks over modules. Tests check that it grows in proportion to a mod.
#pragma once

#include <atomic>
#include <cstdint>

namespace attnc::ir {

/// Number of values, outputs and names that walks of this process have visited. Every walk over a whole module or over
/// its outputs adds to it.
inline std::atomic<uint64_t> visits = 0;

} // namespace attnc::ir
