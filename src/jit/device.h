// Devices, memory, streams, events and graphs, for programs that have no CUDA runtime of their own: the command, the
// tests, the benchmarks. A library user brings these from elsewhere; only currentDevice() serves the library as well.
//
// Every function needs a current context (DeviceContext makes one) unless it says otherwise. Errors are
// Blame::Environment with the driver's name for them. Objects are moved, not copied, and must die before the context.
#pragma once

#include "attnc/error.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUgraphExec_st;

namespace attnc::jit {

struct DeviceInfo {
  int ordinal = 0;
  std::string name; ///< "NVIDIA H200"
  int major = 0, minor = 0;
  std::string arch; ///< archName(major, minor)
  int multiprocessors = 0;
  int sharedBytesPerBlock = 0; ///< the most a kernel may ask for
  int64_t l2Bytes = 0;
  int64_t memoryBytes = 0;
};

/// The calling thread's current context; an error if there is none. Costs well under a microsecond.
Expected<CUctx_st*> currentContext();

/// The device of the calling thread's current context; an error if there is none.
Expected<DeviceInfo> currentDevice();

/// Number of GPUs. Needs no context; an error where there is no driver.
Expected<int> deviceCount();

/// Holds the primary context of a device (the one that the CUDA runtime and PyTorch use) and makes it current for the
/// creating thread.
class DeviceContext {
public:
  static Expected<DeviceContext> create(int ordinal = 0);
  /// For further threads.
  Status makeCurrent() const;
  const DeviceInfo& info() const { return device; }

private:
  struct Release {
    int device;
    void operator()(CUctx_st* context) const;
  };
  explicit DeviceContext(std::unique_ptr<CUctx_st, Release> context) : context(std::move(context)) {}
  std::unique_ptr<CUctx_st, Release> context;
  DeviceInfo device;
};

/// Device memory. Copies and fills are finished when they return; before them, the caller synchronises the streams that
/// use the buffer.
class DeviceBuffer {
public:
  /// 0 bytes are legal and give a null pointer.
  static Expected<DeviceBuffer> allocate(size_t bytes);
  void* data() const { return memory.get(); }
  size_t bytes() const { return size; }
  Status upload(const void* host, size_t bytes, size_t offset = 0);
  Status download(void* host, size_t bytes, size_t offset = 0) const;
  Status fill(uint8_t value);
  /// The same, enqueued.
  Status fillAsync(uint8_t value, CUstream_st* stream);

private:
  struct Free {
    void operator()(void* memory) const;
  };
  Status checkRange(size_t bytes, size_t offset) const;
  std::unique_ptr<void, Free> memory;
  size_t size = 0;
};

/// A captured graph, ready to run.
class DeviceGraph {
public:
  Status launch(CUstream_st* stream) const;

private:
  friend class DeviceStream;
  struct Destroy {
    void operator()(CUgraphExec_st* graph) const;
  };
  std::unique_ptr<CUgraphExec_st, Destroy> graph;
};

/// A stream that does not wait for the null stream.
class DeviceStream {
public:
  static Expected<DeviceStream> create();
  CUstream_st* get() const { return stream.get(); }
  Status synchronize() const;
  /// From here on work is recorded instead of run. Calls that CUDA forbids in a capture fail, in any thread.
  Status beginCapture() const;
  Expected<DeviceGraph> endCapture() const;

private:
  struct Destroy {
    void operator()(CUstream_st* stream) const;
  };
  std::unique_ptr<CUstream_st, Destroy> stream;
};

/// A point in a stream's work, with its time.
class DeviceEvent {
public:
  static Expected<DeviceEvent> create();
  Status record(CUstream_st* stream) const;
  Status synchronize() const;
  /// Milliseconds from `begin` to this event. Both must have been recorded and passed.
  Expected<float> msSince(const DeviceEvent& begin) const;

private:
  struct Destroy {
    void operator()(CUevent_st* event) const;
  };
  std::unique_ptr<CUevent_st, Destroy> event;
};

} // namespace attnc::jit
