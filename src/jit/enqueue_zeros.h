// Writes zeros to device memory on a stream.
#pragma once

#include "attnc/error.h"

#include <cstddef>

struct CUstream_st;

namespace attnc::jit {

/// Enqueues the work; may be captured in a graph. The current context must be that of the memory and the stream.
Status enqueueZeros(void* memory, size_t bytes, CUstream_st* stream);

} // namespace attnc::jit
