// Runs a CTA of device code on the host: a host thread for each of its threads, and emulated hardware functions.
// Include it before the templates. All threads of a CTA must call all functions together.
#pragma once

#include <algorithm>
#include <barrier>
#include <bit>
#include <cmath>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace attnc {

struct ThreadIndex { // named, so that all files of a program share the variable
  unsigned x;
};
inline thread_local ThreadIndex threadIdx;
[[maybe_unused]] inline thread_local struct { unsigned x; } blockIdx, gridDim;

class HostCta {
public:
  /// Calls body() in each of `threads` threads.
  template <class Body> static void run(int threads, Body body) {
    cta().sync.emplace(threads);
    cta().words.assign(size_t(threads), 0);
    std::vector<std::thread> all;
    for (int i = 0; i < threads; ++i)
      all.emplace_back([&, i] {
        threadIdx.x = unsigned(i);
        body();
        cta().sync->arrive_and_drop();
      });
    for (std::thread& thread : all) thread.join();
  }
  static HostCta& cta() {
    static HostCta instance;
    return instance;
  }
  void wait() { sync->arrive_and_wait(); }
  /// Whether `holds` is true in some thread.
  bool any(bool holds) {
    words[threadIdx.x] = float(holds);
    wait();
    const bool result = std::any_of(words.begin(), words.end(), [](float word) { return word != 0; });
    wait();
    return result;
  }
  float shuffle(float x, unsigned lane) {
    words[threadIdx.x] = x;
    wait();
    const float result = words[threadIdx.x / 32 * 32 + lane];
    wait();
    return result;
  }
  /// Returns the fold of the x of all lanes of the thread's warp.
  template <class T, class Fold> T reduce(T x, Fold fold) {
    words[threadIdx.x] = std::bit_cast<float>(x);
    wait();
    const auto first = words.begin() + threadIdx.x / 32 * 32, last = first + std::min<long>(32, words.end() - first);
    T all = std::bit_cast<T>(*first);
    for (auto word = first + 1; word != last; ++word) all = fold(all, std::bit_cast<T>(*word));
    wait();
    return all;
  }
  std::mutex mutex;

private:
  std::optional<std::barrier<>> sync;
  std::vector<float> words;
};

inline void __syncthreads() { HostCta::cta().wait(); }
inline int __syncthreads_or(int holds) { return HostCta::cta().any(holds != 0); }
inline void __syncwarp() { HostCta::cta().wait(); } // of a CTA of one warp
inline float __shfl_sync(unsigned, float x, int lane) { return HostCta::cta().shuffle(x, unsigned(lane) % 32); }
inline float __shfl_xor_sync(unsigned, float x, int lanes) {
  return HostCta::cta().shuffle(x, (threadIdx.x ^ unsigned(lanes)) % 32);
}
inline unsigned __shfl_sync(unsigned mask, unsigned x, int lane) {
  return std::bit_cast<unsigned>(__shfl_sync(mask, std::bit_cast<float>(x), lane));
}
inline int __shfl_sync(unsigned mask, int x, int lane) { return int(__shfl_sync(mask, unsigned(x), lane)); }
inline unsigned __ballot_sync(unsigned, bool holds) {
  return HostCta::cta().reduce(unsigned(holds) << threadIdx.x % 32, std::bit_or<unsigned>());
}
inline int __reduce_min_sync(unsigned, int x) {
  return HostCta::cta().reduce(x, [](int a, int b) { return std::min(a, b); });
}
inline int __reduce_max_sync(unsigned, int x) {
  return HostCta::cta().reduce(x, [](int a, int b) { return std::max(a, b); });
}
inline int __reduce_add_sync(unsigned, int x) { return HostCta::cta().reduce(x, std::plus<int>()); }
inline int __popc(unsigned bits) { return std::popcount(bits); }
template <class T> T atomicAdd(T* to, T amount) {
  std::lock_guard lock(HostCta::cta().mutex);
  return std::exchange(*to, *to + amount);
}
template <class T> T atomicMin(T* to, T other) {
  std::lock_guard lock(HostCta::cta().mutex);
  return std::exchange(*to, std::min(*to, other));
}
template <class T> T atomicMax(T* to, T other) {
  std::lock_guard lock(HostCta::cta().mutex);
  return std::exchange(*to, std::max(*to, other));
}
template <class T> T atomicOr(T* to, T bits) {
  std::lock_guard lock(HostCta::cta().mutex);
  return std::exchange(*to, *to | bits);
}
struct float2 {
  float x, y;
};
struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline int __clz(int x) { return std::countl_zero(unsigned(x)); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
/// For a CTA of one warp.
inline bool __any_sync(unsigned, bool holds) { return HostCta::cta().any(holds); }
inline bool __all_sync(unsigned mask, bool holds) { return !__any_sync(mask, !holds); }
using std::max;
using std::min;

} // namespace attnc
