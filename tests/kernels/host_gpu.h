// A stand-in for sm_90a on the host: the text of a kernel is compiled behind this file, in place of templates/ptx.
//
// Each thread of a CTA is a fiber. A fiber runs until it waits; which one runs next is drawn at random. Copies and
// products are carried out as late as a wait allows, or at once, also at random. Memory that a copy will fill is NaN
// from its request on. So a kernel that reads before a wait, or gives memory back too early, computes NaN, and one that
// waits in vain ends the run with an error. Fences between proxies have no counterpart.
//
// CTAs run one after another: kernels whose CTAs wait for each other are not served.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <ucontext.h>
#include <vector>

#include <cmath>

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
struct int2 {
  int x, y;
};
struct int4 {
  int x, y, z, w;
};
struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
struct Index {
  unsigned x;
};
inline Index threadIdx, blockIdx, blockDim, gridDim;

namespace host {

constexpr int kSharedBytes = 232448;
inline unsigned char* shared; // the CTA's dynamic shared memory
inline unsigned char* at(unsigned address) {
  if (address >= unsigned(kSharedBytes)) {
    std::fprintf(stderr, "shared address %u is outside\n", address);
    std::abort();
  }
  return shared + address;
}
/// The 128-byte swizzle: three bits of an address are mixed with those above them.
inline unsigned swizzled(unsigned address) { return address ^ (address >> 7 & 7) << 4; }

struct Product {
  int columns;
  float* d; // [columns / 8][4]
  bool hasRegisters;
  uint64_t number; // of products with registers: where their words are
  uint64_t a, b;
  bool isMnMajorA, isMnMajorB, accumulates;
  float (*element)(const unsigned char*);
};

struct Fiber {
  ucontext_t context;
  std::function<bool()> ready;
  bool done = false;
  unsigned index;
  std::vector<char> stack;
  unsigned votes = 0; // warp operations so far
  uint64_t products = 0;
  std::vector<Product> open;
  std::deque<std::vector<Product>> groups;
  std::vector<std::function<void()>> copies; // of cp.async, in no group yet
  std::deque<std::vector<std::function<void()>>> copyGroups;
};
struct Warp {
  unsigned arrived[2] = {0, 0}; // of even and odd operations
  unsigned completed = 0;
  uint64_t words[2][32];
  std::map<uint64_t, unsigned[32][4]> operands;
};
struct NamedBarrier {
  int arrived = 0;
  unsigned generation = 0;
};
struct Mbarrier {
  int expected = 0, pending = 0;
  int64_t bytes = 0;
  unsigned phase = 0;
  void check() {
    if (pending == 0 && bytes == 0) ++phase, pending = expected;
  }
};

struct Machine {
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  std::map<int, NamedBarrier> barriers;
  std::map<unsigned, Mbarrier> mbarriers;
  std::vector<std::function<void()>> events; // copies in flight
  std::mt19937 random;
  ucontext_t main;
  Fiber* current = nullptr;
  std::function<void()> body;
  std::string error;
  bool vote = false;

  unsigned draw(unsigned count) { return unsigned(random()) % count; }
  Fiber& fiber() { return *current; }
  Warp& warp() { return warps[current->index / 32]; }

  void wait(std::function<bool()> ready) {
    if (ready() && draw(4)) return;
    current->ready = std::move(ready);
    swapcontext(&current->context, &main);
  }
  void runEvent() {
    const size_t i = draw(unsigned(events.size()));
    auto event = std::move(events[i]);
    events.erase(events.begin() + long(i));
    event();
  }
  static void enter();

  bool run(unsigned threads, std::function<void()> kernel) {
    body = std::move(kernel);
    fibers.resize(threads);
    warps.assign((threads + 31) / 32, {});
    barriers.clear(), mbarriers.clear();
    std::memset(shared, 0xff, kSharedBytes);
    for (unsigned i = 0; i < threads; ++i) {
      Fiber& fiber = fibers[i];
      if (fiber.stack.empty()) fiber.stack.resize(256 << 10);
      fiber.index = i, fiber.done = false, fiber.votes = 0, fiber.products = 0;
      fiber.ready = [] { return true; };
      getcontext(&fiber.context);
      fiber.context.uc_stack = {fiber.stack.data(), 0, fiber.stack.size()};
      fiber.context.uc_link = &main;
      makecontext(&fiber.context, enter, 0);
    }
    for (unsigned alive = threads; alive > 0;) {
      if (!events.empty() && draw(64) == 0) runEvent();
      unsigned i = draw(threads), tried = 0;
      while (tried < threads && (fibers[i].done || !fibers[i].ready())) i = i + 1 == threads ? 0 : i + 1, ++tried;
      if (tried == threads) {
        if (events.empty()) {
          error = "CTA " + std::to_string(blockIdx.x) + ": all threads wait";
          return false;
        }
        runEvent();
        continue;
      }
      current = &fibers[i];
      threadIdx.x = i;
      swapcontext(&main, &current->context);
      if (fibers[i].done) --alive;
    }
    if (!events.empty()) error = "a CTA ended with copies in flight";
    for (const Fiber& fiber : fibers)
      if (!fiber.groups.empty() || !fiber.copies.empty() || !fiber.copyGroups.empty())
        error = "a thread ended without waiting";
    body = nullptr; // the code of these may be unloaded before the next run
    for (Fiber& fiber : fibers) fiber.ready = nullptr;
    return error.empty();
  }

  /// Exchanges a word among the lanes of a warp. Returns the words of all.
  const uint64_t* exchange(uint64_t word) {
    Warp& of = warp();
    const unsigned number = current->votes++, side = number % 2;
    of.words[side][current->index % 32] = word;
    if (++of.arrived[side] == 32) of.arrived[side] = 0, of.completed = number + 1;
    wait([&of, number] { return of.completed > number; });
    return of.words[side];
  }
};
inline Machine machine;
inline void Machine::enter() {
  machine.body();
  machine.current->done = true;
}

inline void arrive(int barrier, int threads) {
  NamedBarrier& of = machine.barriers[barrier];
  if (++of.arrived == threads) of.arrived = 0, ++of.generation;
  if (of.arrived > threads) machine.error = "too many threads arrive at a barrier";
}
inline void sync(int barrier, int threads) {
  NamedBarrier& of = machine.barriers[barrier];
  const unsigned generation = of.generation;
  arrive(barrier, threads);
  machine.wait([&of, generation] { return of.generation != generation; });
}

template <class T> uint64_t bitsOf(T x) {
  uint64_t bits = 0;
  std::memcpy(&bits, &x, sizeof x);
  return bits;
}
template <class T> T fromBits(uint64_t bits) {
  T x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

inline unsigned startOf(uint64_t descriptor) { return unsigned(descriptor & 0x3fff) << 4; }
/// Returns the address of an element of a matrix: `outer` counts rows of A, columns of B, and `k` is along K.
inline unsigned addressOf(uint64_t descriptor, bool isMnMajor, int outer, int k) {
  const unsigned leading = unsigned(descriptor >> 16 & 0x3fff) << 4, stride = unsigned(descriptor >> 32 & 0x3fff) << 4;
  const unsigned linear = isMnMajor ? unsigned(outer / 64) * leading + unsigned(k / 8) * stride +
                                          unsigned(k % 8) * 128 + unsigned(outer % 64) * 2
                                    : unsigned(outer / 8) * stride + unsigned(outer % 8) * 128 + unsigned(k) * 2;
  return swizzled(startOf(descriptor) + linear);
}

inline void multiply(const Product& p, unsigned thread) {
  const int lane = int(thread % 32), warp = int(thread / 32 % 4), g = lane / 4, t = lane % 4;
  float a[2][16];
  for (int r = 0; r < 2; ++r)
    for (int k = 0; k < 16; ++k) {
      if (!p.hasRegisters) {
        a[r][k] = p.element(at(addressOf(p.a, p.isMnMajorA, 16 * warp + g + 8 * r, k)));
        continue;
      }
      const unsigned word = machine.warps[thread / 32].operands.at(p.number)[lane / 4 * 4 + k % 8 / 2][r + k / 8 * 2];
      const unsigned short half = (unsigned short)(k % 2 ? word >> 16 : word);
      a[r][k] = p.element((const unsigned char*)&half);
    }
  for (int n = 0; n < p.columns / 8; ++n)
    for (int e = 0; e < 2; ++e) {
      float sum[2] = {0, 0};
      for (int k = 0; k < 16; ++k) {
        const float b = p.element(at(addressOf(p.b, p.isMnMajorB, 8 * n + 2 * t + e, k)));
        for (int r = 0; r < 2; ++r) sum[r] += a[r][k] * b;
      }
      for (int r = 0; r < 2; ++r) {
        float& d = p.d[4 * n + 2 * r + e];
        d = (p.accumulates ? d : 0.f) + sum[r];
      }
    }
}

/// A tensor map: what the copy engine of this machine reads of TensorMap.
struct Map {
  const char* data;
  int64_t extent[4], strideBytes[3]; // innermost first; strides of the outer three
  int boxRows, elementBytes;
};
/// Calls each(address in shared memory, element of the tensor; null: none) for the elements of a box.
template <class Each> void eachOfBox(const Map& map, unsigned shared, const int (&c)[4], Each each) {
  for (int r = 0; r < map.boxRows; ++r)
    for (int i = 0; i < 128 / map.elementBytes; ++i) {
      const int64_t at4[4] = {c[0] + i, c[1] + r, c[2], c[3]};
      bool isInside = true;
      for (int axis = 0; axis < 4; ++axis) isInside &= at4[axis] >= 0 && at4[axis] < map.extent[axis];
      const int64_t offset = at4[0] * map.elementBytes + at4[1] * map.strideBytes[0] + at4[2] * map.strideBytes[1] +
                             at4[3] * map.strideBytes[2];
      each(at(swizzled(shared + unsigned(r * 128 + i * map.elementBytes))), isInside ? map.data + offset : nullptr);
    }
}
inline void copyBox(const Map& map, unsigned to, const int (&c)[4]) {
  const auto bytes = size_t(map.elementBytes);
  eachOfBox(map, to, c, [=](void* element, const char* of) {
    of ? std::memcpy(element, of, bytes) : std::memset(element, 0, bytes);
  });
}

} // namespace host

namespace attnc {

inline unsigned __float_as_uint(float x) { return host::fromBits<unsigned>(host::bitsOf(x)); }
inline float __uint_as_float(unsigned x) { return host::fromBits<float>(host::bitsOf(x)); }
inline int __float_as_int(float x) { return int(__float_as_uint(x)); }
inline float __int_as_float(int x) { return __uint_as_float(unsigned(x)); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(unsigned x) { return __builtin_ffs(int(x)); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
template <class T> T max(T a, T b) { return a < b ? b : a; }
template <class T> T min(T a, T b) { return b < a ? b : a; }
inline void* __cvta_shared_to_generic(size_t address) { return host::at(unsigned(address)); }

inline void __syncthreads() { host::sync(0, int(host::machine.fibers.size())); }
inline int __syncthreads_or(int holds) {
  host::machine.vote |= holds != 0;
  __syncthreads();
  const bool any = host::machine.vote;
  __syncthreads(); // all have read it
  host::machine.vote = false;
  __syncthreads(); // no one votes anew before
  return any;
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned which) {
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned from = which >> 4 * i & 7;
    result |= ((from < 4 ? x >> 8 * from : y >> 8 * (from - 4)) & 0xff) << 8 * i;
  }
  return result;
}
inline void __syncwarp() { host::machine.exchange(0); }
inline bool __any_sync(unsigned, bool holds) {
  const uint64_t* words = host::machine.exchange(holds);
  for (int i = 0; i < 32; ++i)
    if (words[i]) return true;
  return false;
}
inline bool __all_sync(unsigned mask, bool holds) { return !__any_sync(mask, !holds); }
inline unsigned __ballot_sync(unsigned, bool holds) {
  const uint64_t* words = host::machine.exchange(holds);
  unsigned bits = 0;
  for (int i = 0; i < 32; ++i) bits |= unsigned(words[i]) << i;
  return bits;
}
template <class T> T __shfl_sync(unsigned, T x, int lane) {
  return host::fromBits<T>(host::machine.exchange(host::bitsOf(x))[unsigned(lane) % 32]);
}
template <class T> T __shfl_xor_sync(unsigned mask, T x, int lanes) {
  return __shfl_sync(mask, x, int(threadIdx.x % 32) ^ lanes);
}
template <class T> T __shfl_up_sync(unsigned mask, T x, int lanes) {
  const int lane = int(threadIdx.x % 32);
  return __shfl_sync(mask, x, lane >= lanes ? lane - lanes : lane);
}

template <class T> T atomicAdd(T* to, T amount) {
  const T old = *to;
  *to += amount;
  return old;
}

template <class T> T atomicOr(T* to, T bits) {
  const T old = *to;
  *to |= bits;
  return old;
}

struct TensorMap;

namespace ptx {

inline float ex2(float x) { return x < -126 ? 0.f : std::exp2(x); }
inline float lg2(float x) { return std::log2(x); }
inline float rcp(float x) { return 1 / x; }
inline float min_nan(float x, float y) { return std::isnan(x) || std::isnan(y) ? NAN : std::fmin(x, y); }
inline int opaque(int x) { return x; }
inline unsigned prmt(unsigned x, unsigned y, unsigned which) { return __byte_perm(x, y, which); }
inline unsigned cvt_rna_tf32(float x) { return __float_as_uint(x); }
inline float cvt_f32_f16(unsigned short x) { return float(host::fromBits<_Float16>(x)); }
inline unsigned cvt_rn_f16x2(float high, float low) {
  return unsigned(host::bitsOf(_Float16(high))) << 16 | unsigned(host::bitsOf(_Float16(low)));
}
inline unsigned bf16(float x) {
  const unsigned bits = __float_as_uint(x);
  return std::isnan(x) ? 0x7fffu : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline unsigned cvt_rn_bf16x2(float high, float low) { return bf16(high) << 16 | bf16(low); }
inline unsigned e4m3(float x) {
  const unsigned sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return sign | 0x7f;
  const float size = std::fmin(std::fabs(x), 448.f);
  int exponent;
  std::frexp(size, &exponent);
  exponent = std::max(exponent - 1, -6);
  const int steps = int(std::nearbyint(std::ldexp(size, 3 - exponent))); // 8 and more if normal
  return sign | unsigned(steps < 8 ? steps : ((exponent + 7) << 3) + steps - 8);
}
inline unsigned short cvt_rn_satfinite_e4m3x2(float high, float low) {
  return (unsigned short)(e4m3(high) << 8 | e4m3(low));
}
template <int Half> unsigned cvt_f16x2_e4m3x2(unsigned bytes) {
  const auto pair = static_cast<unsigned short>(bytes >> 16 * Half);
  const auto half = [](unsigned x) {
    const unsigned short tiny = (unsigned short)((x & 0x80) << 8 | (x & 0x7f) << 7); // by 2^8 too small
    const float value = (x & 0x7f) == 0x7f ? NAN : float(host::fromBits<_Float16>(tiny)) * 256;
    return unsigned(host::bitsOf(_Float16(value)));
  };
  return half(pair >> 8) << 16 | half(pair & 0xff);
}

inline void ld_global_cg(float (&x)[4], const float* from) { std::memcpy(x, from, sizeof x); }
inline unsigned ld_global_cg(const unsigned* from) { return *from; }
inline void st_global_cg(float* to, const float (&x)[4]) { std::memcpy(to, x, sizeof x); }
template <class T> void st_global(void* to, const T (&x)[4]) { std::memcpy(to, x, sizeof x); }
inline void st_global_cg(unsigned* to, unsigned x) { *to = x; }
inline int atom_add_acq_rel(int* to, int x) {
  const int old = *to;
  *to += x;
  return old;
}

inline unsigned shared_address(const void*) { return 0; } // of dynamic shared memory, which is all there is
template <class T> void load(T& x, unsigned from) { std::memcpy(&x, host::at(from), sizeof x); }
inline void ld_shared(int (&x)[4], unsigned from) { load(x, from); }
inline void ld_shared(int (&x)[2], unsigned from) { load(x, from); }
inline int ld_shared_int(unsigned from) {
  int x;
  return load(x, from), x;
}
inline float ld_shared_float(unsigned from) {
  float x;
  return load(x, from), x;
}
inline float2 ld_shared_float2(unsigned from) {
  float2 x;
  return load(x, from), x;
}
inline void st_shared(unsigned to, float x) { std::memcpy(host::at(to), &x, sizeof x); }
inline void st_shared(unsigned to, int x) { std::memcpy(host::at(to), &x, sizeof x); }
inline void st_shared(unsigned to, const float (&x)[2]) { std::memcpy(host::at(to), x, sizeof x); }
inline void st_shared(unsigned to, const int (&x)[2]) { std::memcpy(host::at(to), x, sizeof x); }
inline void st_shared(unsigned to, const int (&x)[4]) { std::memcpy(host::at(to), x, sizeof x); }
inline void fence_proxy_async() {}

inline unsigned ld_shared_u32(unsigned from) {
  unsigned x;
  return load(x, from), x;
}
inline void ldmatrix_x4(unsigned (&r)[4], unsigned from) {
  const uint64_t* rows = host::machine.exchange(from);
  for (unsigned i = 0; i < 4; ++i) load(r[i], unsigned(rows[8 * i + threadIdx.x % 32 / 4]) + threadIdx.x % 4 * 4);
}
inline void ldmatrix_x4_trans(unsigned (&r)[4], unsigned from) {
  const uint64_t* rows = host::machine.exchange(from);
  const unsigned column = threadIdx.x % 32 / 4, row = threadIdx.x % 4 * 2;
  for (unsigned i = 0; i < 4; ++i) {
    unsigned short pair[2];
    for (unsigned j = 0; j < 2; ++j) load(pair[j], unsigned(rows[8 * i + row + j]) + 2 * column);
    r[i] = unsigned(pair[1]) << 16 | pair[0];
  }
}

inline void stmatrix_x4(unsigned to, const unsigned (&r)[4]) {
  const uint64_t* rows = host::machine.exchange(to);
  const unsigned lane = threadIdx.x % 32;
  for (unsigned i = 0; i < 4; ++i) std::memcpy(host::at(unsigned(rows[8 * i + lane / 4]) + lane % 4 * 4), &r[i], 4);
}

template <int Threads> void named_barrier_sync(int barrier) { host::sync(barrier, Threads); }
template <int Threads> void named_barrier_arrive(int barrier) { host::arrive(barrier, Threads); }
template <int> void setmaxnreg_inc() {}
template <int> void setmaxnreg_dec() {}
inline void exit_thread() { std::abort(); }

inline void cp_async_16(unsigned to, const void* from, int bytes) {
  std::memset(host::at(to), 0xff, 16);
  host::machine.fiber().copies.push_back([=] {
    std::memset(host::at(to), 0, 16);
    std::memcpy(host::at(to), from, size_t(bytes));
  });
}
inline void cp_async_commit_group() {
  host::Fiber& fiber = host::machine.fiber();
  fiber.copyGroups.push_back(std::move(fiber.copies));
  fiber.copies.clear();
}
template <int Pending> void cp_async_wait_group() {
  auto& groups = host::machine.fiber().copyGroups;
  for (; groups.size() > Pending; groups.pop_front())
    for (auto& copy : groups.front()) copy();
}

inline void mbarrier_init(unsigned barrier, int arrivals) { host::machine.mbarriers[barrier] = {arrivals, arrivals}; }
inline void fence_mbarrier_init() {}
inline void mbarrier_arrive(unsigned barrier) {
  host::Mbarrier& of = host::machine.mbarriers.at(barrier);
  --of.pending;
  of.check();
}
inline void mbarrier_arrive_expect_tx(unsigned barrier, int bytes) {
  host::machine.mbarriers.at(barrier).bytes += bytes;
  mbarrier_arrive(barrier);
}
inline void mbarrier_wait(unsigned barrier, unsigned parity) {
  host::Mbarrier& of = host::machine.mbarriers.at(barrier);
  host::machine.wait([&of, parity] { return (of.phase & 1) != parity; });
}

inline bool mbarrier_test(unsigned barrier, unsigned parity) {
  return (host::machine.mbarriers.at(barrier).phase & 1) != parity;
}

inline void prefetch_tensor_map(const TensorMap&) {}
template <class... Maps> void prefetch_tensor_maps(const Maps&...) {}
inline void tma_load_4d(unsigned to, const TensorMap& map, unsigned barrier, int c0, int c1, int c2, int c3) {
  const host::Map of = *(const host::Map*)&map;
  const unsigned bytes = unsigned(of.boxRows) * 128;
  std::memset(host::at(to), 0xff, bytes);
  host::machine.events.push_back([=] {
    host::copyBox(of, to, {c0, c1, c2, c3});
    host::Mbarrier& done = host::machine.mbarriers.at(barrier);
    done.bytes -= bytes;
    done.check();
  });
}

inline void tma_store_4d(const TensorMap& map, unsigned from, int c0, int c1, int c2, int c3) {
  const host::Map& to = *(const host::Map*)&map;
  host::eachOfBox(to, from, {c0, c1, c2, c3}, [&](const void* element, const char* of) {
    if (of) std::memcpy((char*)of, element, size_t(to.elementBytes));
  });
}
inline void bulk_commit_group() {}
inline void bulk_wait_read() {}

template <class Element> float elementAt(const unsigned char* at) {
  Element x;
  std::memcpy(&x, at, sizeof x);
  return to_float(x);
}
inline void runProducts(std::vector<host::Product>& group) {
  for (const host::Product& product : group) host::multiply(product, host::machine.fiber().index);
  group.clear();
}
template <class Element> void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  float of_a[16][16], of_b[16][8]; // [row][k], [k][column]
  const auto spread = [](unsigned word, auto put) {
    const uint64_t* words = host::machine.exchange(word);
    for (int lane = 0; lane < 32; ++lane)
      for (int half = 0; half < 2; ++half) {
        const unsigned short bits = (unsigned short)(words[lane] >> 16 * half);
        put(lane / 4, lane % 4 * 2 + half, elementAt<Element>((const unsigned char*)&bits));
      }
  };
  for (int i = 0; i < 4; ++i) spread(a[i], [&](int g, int k, float x) { of_a[g + i % 2 * 8][k + i / 2 * 8] = x; });
  for (int i = 0; i < 2; ++i) spread(i ? b1 : b0, [&](int g, int k, float x) { of_b[k + i * 8][g] = x; });
  const int lane = int(threadIdx.x % 32);
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < 16; ++k) d[i] += of_a[lane / 4 + i / 2 * 8][k] * of_b[k][lane % 4 * 2 + i % 2];
}
inline void mma_m16n8k32_e4m3(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  float of_a[16][32], of_b[32][8]; // [row][k], [k][column]
  const auto spread = [](unsigned word, auto put) {
    const uint64_t* words = host::machine.exchange(word);
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        const unsigned half = cvt_f16x2_e4m3x2<0>(unsigned(words[lane] >> 8 * i & 0xff));
        put(lane / 4, lane % 4 * 4 + i, cvt_f32_f16((unsigned short)half));
      }
  };
  for (int i = 0; i < 4; ++i) spread(a[i], [&](int g, int k, float x) { of_a[g + i % 2 * 8][k + i / 2 * 16] = x; });
  for (int i = 0; i < 2; ++i) spread(i ? b1 : b0, [&](int g, int k, float x) { of_b[k + i * 16][g] = x; });
  const int lane = int(threadIdx.x % 32);
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < 32; ++k) d[i] += of_a[lane / 4 + i / 2 * 8][k] * of_b[k][lane % 4 * 2 + i % 2];
}
inline void mma_m16n8k8_tf32(float (&)[4], const unsigned (&)[4], unsigned, unsigned) { std::abort(); }
template <int N> void touch(float (&d)[N][4]) { asm volatile("" ::"r"(&d) : "memory"); }
inline void wgmma_fence() {}
template <class Element, int N, int MnA, int MnB, class D>
void wgmma_ss(D& d, unsigned long long a, unsigned long long b, int accumulate) {
  host::machine.fiber().open.push_back(
      {N, &d[0][0], false, 0, a, b, bool(MnA), bool(MnB), accumulate != 0, elementAt<Element>});
}
template <class Element, int N, int MnB, class D>
void wgmma_rs(D& d, const unsigned (&a)[4], unsigned long long b, int accumulate) {
  host::Fiber& fiber = host::machine.fiber();
  const uint64_t number = fiber.products++ % 256;
  std::memcpy(host::machine.warp().operands[number][fiber.index % 32], a, sizeof a);
  fiber.open.push_back({N, &d[0][0], true, number, 0, b, false, bool(MnB), accumulate != 0, elementAt<Element>});
}
inline void wgmma_commit_group() {
  host::machine.exchange(0); // the operands of all lanes are there
  host::Fiber& fiber = host::machine.fiber();
  fiber.groups.push_back(std::move(fiber.open));
  fiber.open.clear();
  if (fiber.groups.size() == 1 && host::machine.draw(2)) runProducts(fiber.groups.back());
}
template <int Pending> void wgmma_wait_group() {
  host::Fiber& fiber = host::machine.fiber();
  for (; fiber.groups.size() > Pending; fiber.groups.pop_front()) runProducts(fiber.groups.front());
}

} // namespace ptx
} // namespace attnc
