// What the examples in C++ share: results that end the program if they failed, and memory.
#pragma once

#include "device.h"

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

/// Returns the value of an Expected of attnc.h.
template <class Expected> auto take(Expected result) {
  if (!result) {
    std::fprintf(stderr, "%s\n%s\n", result.error().message.c_str(), result.error().remedy.c_str());
    std::exit(1);
  }
  return *std::move(result);
}

template <class Status> void check(const Status& status) {
  if (status) return;
  std::fprintf(stderr, "%s\n%s\n", status.error().message.c_str(), status.error().remedy.c_str());
  std::exit(1);
}

inline void checkCuda(int result) {
  if (result == 0) return;
  std::fprintf(stderr, "CUDA error %d\n", result);
  std::exit(1);
}

/// Memory where attention is computed: of the GPU, or of the host without one.
class Buffer {
public:
  Buffer(const device& gpu, size_t bytes) : gpu(gpu) {
    if (bytes) checkCuda(gpu.alloc(&address, bytes));
  }
  template <class T> Buffer(const device& gpu, const std::vector<T>& from) : Buffer(gpu, from.size() * sizeof(T)) {
    upload(from);
  }
  Buffer(const Buffer&) = delete;
  ~Buffer() {
    if (address) gpu.release(address);
  }
  void* data() const { return reinterpret_cast<void*>(address); }
  template <class T> void upload(const std::vector<T>& from) {
    checkCuda(gpu.upload(address, from.data(), from.size() * sizeof(T)));
  }
  template <class T> void download(std::vector<T>& to) const {
    checkCuda(gpu.download(to.data(), address, to.size() * sizeof(T)));
  }

private:
  const device& gpu;
  uint64_t address = 0;
};

/// Returns numbers in -1 .. 1 that look random, as bf16.
inline std::vector<uint16_t> drawBf16(int64_t count, uint32_t& state) {
  std::vector<uint16_t> values(static_cast<size_t>(count));
  for (uint16_t& value : values) value = to_bf16(draw(&state));
  return values;
}
