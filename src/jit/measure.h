// The driver functions for measuring kernels: device memory, a clock, copies to the host. All use the current context,
// which belongs to the caller.
#pragma once

#include "attnc/error.h"

#include <array>
#include <cstddef>
#include <functional>
#include <memory>

struct CUevent_st;
struct CUstream_st;

namespace attnc::jit {

/// Allocates device memory, which its last owner frees; 0 bytes give null.
Expected<std::shared_ptr<void>> allocate(size_t bytes);

/// Waits for all work of a stream.
Status synchronize(CUstream_st* stream);

/// Copies from device to host memory, after all work of the stream.
Status bringBack(void* host, const void* device, size_t bytes, CUstream_st* stream);

/// Returns whether the stream is being captured into a CUDA graph.
Expected<bool> isCaptured(CUstream_st* stream);

/// Times work on a stream with events.
class Stopwatch {
public:
  static Expected<Stopwatch> create();

  /// Returns the milliseconds of a launch, of `launches` in a row on the stream; waits for them. `enqueue` enqueues
  /// one. Few wait in the queue at a time: a full one lets the GPU idle. Errors: those of `enqueue` and of the driver.
  Expected<float> ms(CUstream_st* stream, int launches, const std::function<Status()>& enqueue);

private:
  struct Destroy {
    void operator()(CUevent_st* event) const;
  };
  std::array<std::unique_ptr<CUevent_st, Destroy>, 5> events; ///< begin, end, and marks within the queue
};

} // namespace attnc::jit
