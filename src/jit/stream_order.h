// What orders work between streams, and brings small tables to the device.
#pragma once

#include "attnc/error.h"

#include <cstddef>

struct CUstream_st;

namespace attnc::jit {

/// Lets `stream` wait for all work that `other` has now. Does not block the host. Nothing to do if they are the same.
Status waitFor(CUstream_st* stream, CUstream_st* other);

/// Enqueues a copy from pageable host memory, which may change once this returns.
Status upload(void* device, const void* host, size_t bytes, CUstream_st* stream);

} // namespace attnc::jit
