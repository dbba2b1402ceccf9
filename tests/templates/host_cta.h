// Runs a CTA of device code on the host: a fiber for each of its threads, and emulated hardware functions.
// Include it before the templates. All threads of a CTA must call all functions together.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

namespace attnc {

struct ThreadIndex { // named, so that all files of a program share the variable
  unsigned x;
};
inline ThreadIndex threadIdx;
[[maybe_unused]] inline struct { unsigned x; } blockIdx, gridDim;

class HostCta {
public:
  /// Calls body() in each of `threads` threads, which take turns at barriers: first to last, then last to first.
  template <class Body> static void run(int threads, Body body) {
    HostCta& c = cta();
    c.words.assign(size_t(threads), 0);
    c.body = std::ref(body);
    std::vector<Fiber> fibers(size_t(threads), Fiber{});
    if (c.stacks.size() < fibers.size()) c.stacks.resize(fibers.size(), std::vector<char>(kStackBytes));
    for (Fiber& fiber : fibers) {
      getcontext(&fiber.context);
      std::vector<char>& stack = c.stacks[size_t(&fiber - fibers.data())];
      fiber.context.uc_stack.ss_sp = stack.data();
      fiber.context.uc_stack.ss_size = stack.size();
      fiber.context.uc_link = &c.main;
      makecontext(&fiber.context, &HostCta::call, 0);
    }
    for (bool isForward = true, isAny = true; std::exchange(isAny, false); isForward = !isForward)
      for (size_t i = 0; i < fibers.size(); ++i) {
        const size_t place = isForward ? i : fibers.size() - 1 - i;
        c.current = &fibers[place];
        if (c.current->isDone) continue;
        threadIdx.x = unsigned(place);
        swapcontext(&c.main, &c.current->context);
        isAny = true;
      }
  }
  static HostCta& cta() {
    static HostCta instance;
    return instance;
  }
  void wait() { swapcontext(&current->context, &main); }
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

private:
  static constexpr size_t kStackBytes = 1 << 17;
  struct Fiber {
    ucontext_t context;
    bool isDone = false;
  };
  static void call() {
    cta().body();
    cta().current->isDone = true;
  }
  std::function<void()> body;
  ucontext_t main;
  Fiber* current = nullptr;
  std::vector<std::vector<char>> stacks;
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
inline unsigned __reduce_or_sync(unsigned, unsigned x) { return HostCta::cta().reduce(x, std::bit_or<unsigned>()); }
inline int __reduce_add_sync(unsigned, int x) { return HostCta::cta().reduce(x, std::plus<int>()); }
inline int __popc(unsigned bits) { return std::popcount(bits); }
template <class T> T atomicAdd(T* to, T amount) { return std::exchange(*to, *to + amount); }
template <class T> T atomicMin(T* to, T other) { return std::exchange(*to, std::min(*to, other)); }
template <class T> T atomicMax(T* to, T other) { return std::exchange(*to, std::max(*to, other)); }
template <class T> T atomicOr(T* to, T bits) { return std::exchange(*to, *to | bits); }
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
