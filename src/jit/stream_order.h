// What orders work between streams, and copies small tables and rows.
#pragma once

#include "attnc/error.h"

#include <cstddef>

struct CUstream_st;

namespace attnc::jit {

/// Lets `stream` wait for all work that `other` has now. Does not block the host. Nothing to do if they are the same.
Status waitFor(CUstream_st* stream, CUstream_st* other);

/// Enqueues a copy from pageable host memory, which may change once this returns.
Status upload(void* device, const void* host, size_t bytes, CUstream_st* stream);

/// Rows of bytes in device memory, the first bytes of which lie `pitch` apart.
struct RowsAt {
  void* data;
  size_t pitch;
};

/// Enqueues a copy of `rows` rows of `bytes` each, within the device.
Status copyRows(RowsAt to, RowsAt from, size_t bytes, size_t rows, CUstream_st* stream);

} // namespace attnc::jit
