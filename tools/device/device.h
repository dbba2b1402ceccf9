// Devices, memory, streams, events and graphs for programs without a CUDA runtime: the command, the tests, the
// benchmarks. Users of the library bring their own.
//
// Every function needs a current context (Context makes one) unless it says otherwise. Errors are Blame::Environment
// with the driver's name for them. Objects are moved, not copied, and must die before the context.
#pragma once

#include "attnc/error.h"
#include "jit/current_device.h"

#include <cstddef>
#include <cstdint>
#include <memory>

struct CUstream_st;
struct CUevent_st;
struct CUgraphExec_st;

namespace attnc::device {

/// Returns the number of GPUs. Needs no context. An error if there is no driver.
Expected<int> count();
/// Returns the version of CUDA that the driver has: 13000 for 13.0. Needs no context. An error if there is no driver.
Expected<int> driverVersion();

/// Gives objects back to the driver.
struct Release {
  void operator()(void* memory) const;
  void operator()(CUgraphExec_st* graph) const;
  void operator()(CUstream_st* stream) const;
  void operator()(CUevent_st* event) const;
};

/// Holds the primary context of a device (the one that the CUDA runtime and PyTorch use) and makes it current for the
/// creating thread.
class Context {
public:
  static Expected<Context> create(int ordinal = 0);
  /// Makes the context current in another thread.
  Status makeCurrent() const;
  const jit::DeviceInfo& info() const { return device; }

private:
  struct Leave {
    int device;
    void operator()(CUctx_st* context) const;
  };
  explicit Context(std::unique_ptr<CUctx_st, Leave> context) : context(std::move(context)) {}
  std::unique_ptr<CUctx_st, Leave> context;
  jit::DeviceInfo device;
};

/// Device memory. Copies and fills are finished when they return. The caller must first synchronise the streams that
/// use the buffer.
class Buffer {
public:
  /// Allocates memory. 0 bytes are legal and give a null pointer.
  static Expected<Buffer> allocate(size_t bytes);
  void* data() const { return memory.get(); }
  size_t bytes() const { return size; }
  Status upload(const void* host, size_t bytes, size_t offset = 0);
  Status download(void* host, size_t bytes, size_t offset = 0) const;
  Status fill(uint8_t value);
  /// Enqueues a fill.
  Status fillAsync(uint8_t value, CUstream_st* stream);
  /// Enqueues a copy of all of `from`, which must not be larger than this buffer.
  Status copyAsync(const Buffer& from, CUstream_st* stream);

private:
  Status checkRange(size_t bytes, size_t offset) const;
  std::unique_ptr<void, Release> memory;
  size_t size = 0;
};

/// A captured graph, ready to run.
class Graph {
public:
  Status launch(CUstream_st* stream) const;

private:
  friend class Stream;
  std::unique_ptr<CUgraphExec_st, Release> graph;
};

/// A stream that does not wait for the null stream.
class Stream {
public:
  static Expected<Stream> create();
  CUstream_st* get() const { return stream.get(); }
  Status synchronize() const;
  /// Begins recording work instead of running it. Calls that CUDA forbids during a capture fail, in any thread.
  Status beginCapture() const;
  Expected<Graph> endCapture() const;

private:
  std::unique_ptr<CUstream_st, Release> stream;
};

/// A point in a stream's work, with its time.
class Event {
public:
  static Expected<Event> create();
  Status record(CUstream_st* stream) const;
  Status synchronize() const;
  /// Returns the milliseconds from `begin` to this event. Both must have been recorded and reached.
  Expected<float> msSince(const Event& begin) const;

private:
  std::unique_ptr<CUevent_st, Release> event;
};

} // namespace attnc::device
