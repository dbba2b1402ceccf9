// How much walks over modules do, for tests that hold work to growing in step with a mod.
#pragma once

#include <cstdint>

namespace attnc::ir {

/// Values, outputs and names that walks of this thread have looked at, since it began. Every walk over a whole module or
/// over its outputs adds to it.
inline thread_local uint64_t visits = 0;

} // namespace attnc::ir
