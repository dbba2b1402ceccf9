// What measuring kernels takes of the driver: memory, a clock, and bytes brought back. In the current context, which is the
// caller's.
#pragma once

#include "attnc/error.h"

#include <cstddef>
#include <functional>

struct CUevent_st;
struct CUstream_st;

namespace attnc::jit {

/// Device memory that lives as long as this. Moved from, it holds none.
class DeviceMemory {
public:
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept : address(other.address) { other.address = nullptr; }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory();

  /// 0 bytes: null.
  static Expected<DeviceMemory> allocate(size_t bytes);
  void* data() const { return address; }

private:
  void* address = nullptr;
};

/// Waits for all work of a stream.
Status synchronize(CUstream_st* stream);

/// Copies from device to host memory, after all work of the stream.
Status bringBack(void* host, const void* device, size_t bytes, CUstream_st* stream);

/// Times work on a stream by events.
class Stopwatch {
public:
  static Expected<Stopwatch> create();
  Stopwatch(Stopwatch&& other) noexcept : begin(other.begin), end(other.end) { other.begin = other.end = nullptr; }
  ~Stopwatch();

  /// Milliseconds of what `enqueue` puts on the stream, for which this waits. Errors: its own, and the driver's.
  Expected<float> ms(CUstream_st* stream, const std::function<Status()>& enqueue);

private:
  Stopwatch() = default;
  CUevent_st* begin = nullptr;
  CUevent_st* end = nullptr;
};

} // namespace attnc::jit
