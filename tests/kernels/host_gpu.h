// A stand-in for sm_90a on the host: the text of a kernel is compiled behind this file, in place of templates/ptx.
//
// Each thread of a CTA is a fiber. A fiber runs until it waits; which one runs next is drawn at random. Copies and
// products are carried out as late as a wait allows, or at once, also at random. Memory that a copy will fill is NaN
// from its request on. So a kernel that reads before a wait, or gives memory back too early, computes NaN, and one that
// waits in vain ends the run with an error. Fences between proxies have no counterpart.
//
// CTAs run one after another, or a few of them at a time, which take turns at random: `resident`. Kernels whose CTAs
// wait for others of higher index are not served.
//
// The machine is in host_gpu.cpp, in the test program, whose symbols kernels see. Each kernel compiles this file anew,
// so it includes little.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0

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
extern Index threadIdx, blockIdx, blockDim, gridDim;

namespace host {

constexpr int kSharedBytes = 232448;
extern unsigned char* shared;        // the CTA's dynamic shared memory
extern unsigned char* dynamicShared; // what the kernel declares, as which it passes
inline unsigned char* at(unsigned address) {
  if (address >= unsigned(kSharedBytes)) {
    std::fprintf(stderr, "shared address %u is outside\n", address);
    std::abort();
  }
  return shared + address;
}

/// Runs CTAs. Returns what is wrong; empty if nothing is.
const char* run(unsigned ctas, unsigned threads, unsigned seed, unsigned char* shared,
                void (*kernel)(const void* params, const void* args), const void* params, const void* args);
/// Exchanges a word among the lanes of a warp. Returns the words of all.
const uint64_t* exchange(uint64_t word);
void sync(int barrier, int threads);
[[noreturn]] void exitThread();
void arrive(int barrier, int threads);
extern bool vote; // of __syncthreads_or

/// A product of the warpgroup, of one thread.
struct Product {
  int columns;
  float* d; // [columns / 8][4]
  bool hasRegisters;
  uint64_t number; // of products with registers: where their words are
  uint64_t a, b;
  bool isMnMajorA, isMnMajorB, accumulates;
  float (*element)(const unsigned char*);
};
/// Adds a product to the group that is open.
void add(const Product& product);
/// Keeps the words of the current lane. Returns the product's number.
uint64_t keep(const unsigned (&a)[4]);
/// Carries out groups of copies, or of products, until `pending` are left.
void waitForCopies(size_t pending);
void waitForProducts(size_t pending);

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
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
template <class T> T max(T a, T b) { return a < b ? b : a; }
template <class T> T min(T a, T b) { return b < a ? b : a; }
inline void* __cvta_shared_to_generic(size_t address) { return host::at(unsigned(address)); }

inline void __syncthreads() { host::sync(0, int(blockDim.x)); }
inline void __threadfence() {}
inline int __syncthreads_or(int holds) {
  host::vote |= holds != 0;
  __syncthreads();
  const bool any = host::vote;
  __syncthreads(); // all have read it
  host::vote = false;
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
inline void __syncwarp() { host::exchange(0); }
inline bool __any_sync(unsigned, bool holds) {
  const uint64_t* words = host::exchange(holds);
  for (int i = 0; i < 32; ++i)
    if (words[i]) return true;
  return false;
}
inline bool __all_sync(unsigned mask, bool holds) { return !__any_sync(mask, !holds); }
inline unsigned __ballot_sync(unsigned, bool holds) {
  const uint64_t* words = host::exchange(holds);
  unsigned bits = 0;
  for (int i = 0; i < 32; ++i) bits |= unsigned(words[i]) << i;
  return bits;
}
template <class T, class Fold> T reduced(T x, Fold fold) {
  const uint64_t* words = host::exchange(host::bitsOf(x));
  T all = host::fromBits<T>(words[0]);
  for (int i = 1; i < 32; ++i) all = fold(all, host::fromBits<T>(words[i]));
  return all;
}
inline int __reduce_add_sync(unsigned, int x) {
  return reduced(x, [](int a, int b) { return a + b; });
}
inline int __reduce_min_sync(unsigned, int x) {
  return reduced(x, [](int a, int b) { return min(a, b); });
}
inline int __reduce_max_sync(unsigned, int x) {
  return reduced(x, [](int a, int b) { return max(a, b); });
}
inline unsigned __reduce_or_sync(unsigned, unsigned x) {
  return reduced(x, [](unsigned a, unsigned b) { return a | b; });
}
template <class T> T __shfl_sync(unsigned, T x, int lane) {
  return host::fromBits<T>(host::exchange(host::bitsOf(x))[unsigned(lane) % 32]);
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

inline int atomicMax(int* to, int x) {
  const int old = *to;
  *to = max(old, x);
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
inline unsigned uniform(unsigned x) { return x; }
inline unsigned prmt(unsigned x, unsigned y, unsigned which) {
  unsigned result = __byte_perm(x, y, which & 0x7777);
  for (int i = 0; i < 4; ++i)
    if (which >> 4 * i & 8) result = (result & ~(0xffu << 8 * i)) | (result >> (8 * i + 7) & 1 ? 0xffu << 8 * i : 0u);
  return result;
}
inline unsigned cvt_rna_tf32(float x) { return (__float_as_uint(x) + 0x1000) & ~0x1fffu; }
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
  exponent = max(exponent - 1, -6);
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

/// A static array, of which a kernel asks for one at most, lies behind dynamic shared memory.
inline unsigned shared_address(const void* array) {
  return array == host::dynamicShared ? 0 : host::kSharedBytes - 65536;
}
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
inline void st_shared(unsigned to, const float (&x)[4]) { std::memcpy(host::at(to), x, sizeof x); }
inline void st_shared(unsigned to, const int (&x)[2]) { std::memcpy(host::at(to), x, sizeof x); }
inline void st_shared(unsigned to, const int (&x)[4]) { std::memcpy(host::at(to), x, sizeof x); }
inline void fence_proxy_async() {}

inline unsigned ld_shared_u32(unsigned from) {
  unsigned x;
  return load(x, from), x;
}
inline void ldmatrix_x4(unsigned (&r)[4], unsigned from) {
  const uint64_t* rows = host::exchange(from);
  for (unsigned i = 0; i < 4; ++i) load(r[i], unsigned(rows[8 * i + threadIdx.x % 32 / 4]) + threadIdx.x % 4 * 4);
}
inline void ldmatrix_x4_trans(unsigned (&r)[4], unsigned from) {
  const uint64_t* rows = host::exchange(from);
  const unsigned column = threadIdx.x % 32 / 4, row = threadIdx.x % 4 * 2;
  for (unsigned i = 0; i < 4; ++i) {
    unsigned short pair[2];
    for (unsigned j = 0; j < 2; ++j) load(pair[j], unsigned(rows[8 * i + row + j]) + 2 * column);
    r[i] = unsigned(pair[1]) << 16 | pair[0];
  }
}

inline void red_add(float* to, float x) { atomicAdd(to, x); }
inline void red_add4(float* to, float x0, float x1, float x2, float x3) {
  const float x[4] = {x0, x1, x2, x3};
  for (int i = 0; i < 4; ++i) atomicAdd(to + i, x[i]);
}
/// Waits if this thread has just read the same: a kernel polls.
int load_acquire(const int* from);
inline void store_release(int* to, int x) { *to = x; }
inline void max_release(int* to, int x) { atomicMax(to, x); }

inline void stmatrix_x4(unsigned to, const unsigned (&r)[4]) {
  const uint64_t* rows = host::exchange(to);
  const unsigned lane = threadIdx.x % 32;
  for (unsigned i = 0; i < 4; ++i) std::memcpy(host::at(unsigned(rows[8 * i + lane / 4]) + lane % 4 * 4), &r[i], 4);
}

template <int Threads> void named_barrier_sync(int barrier) { host::sync(barrier, Threads); }
template <int Threads> void named_barrier_arrive(int barrier) { host::arrive(barrier, Threads); }
template <int> void setmaxnreg_inc() {}
template <int> void setmaxnreg_dec() {}
inline void exit_thread() { host::exitThread(); }

void cp_async_16(unsigned to, const void* from, int bytes);
void cp_async_commit_group();
template <int Pending> void cp_async_wait_group() { host::waitForCopies(Pending); }

void mbarrier_init(unsigned barrier, int arrivals);
inline void fence_mbarrier_init() {}
void mbarrier_arrive(unsigned barrier);
void mbarrier_expect_tx(unsigned barrier, int bytes);
void mbarrier_arrive_expect_tx(unsigned barrier, int bytes);
void mbarrier_wait(unsigned barrier, unsigned parity);
bool mbarrier_test(unsigned barrier, unsigned parity);

inline void prefetch_tensor_map(const TensorMap&) {}
template <class... Maps> void prefetch_tensor_maps(const Maps&...) {}
void tma_load_4d(unsigned to, const TensorMap& map, unsigned barrier, int c0, int c1, int c2, int c3);
void tma_load_5d(unsigned to, const TensorMap& map, unsigned barrier, int c0, int c1, int c2, int c3, int c4);
void tma_add_5d(const TensorMap& map, unsigned from, int c0, int c1, int c2, int c3, int c4);
// Kernels of clusters do not run on the host: these only compile.
void tma_multicast_4d(unsigned to, const TensorMap& map, unsigned barrier, int c0, int c1, int c2, int c3,
                      unsigned short ctas);
int cluster_rank();
void cluster_arrive();
void cluster_sync();
void mbarrier_arrive_at(unsigned barrier, int rank, bool really);
void tma_store_4d(const TensorMap& map, unsigned from, int c0, int c1, int c2, int c3);
inline void bulk_commit_group() {}
inline void bulk_wait() {}
inline void bulk_wait_read() {}
inline void fence_proxy_async_global() {}
inline void bulk_store(float* to, unsigned from, int bytes) { std::memcpy(to, host::at(from), size_t(bytes)); }
inline void bulk_add(float* to, unsigned from, int bytes) {
  for (int i = 0; i < bytes / 4; ++i) atomicAdd(to + i, ld_shared_float(from + 4 * unsigned(i)));
}

template <class Element> float elementAt(const unsigned char* at) {
  Element x;
  std::memcpy(&x, at, sizeof x);
  return to_float(x);
}
/// d += a b. A word of a or b has `Each` elements, of which at(word, i) is the value.
template <int Each, class At> void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, At at) {
  constexpr int kK = 8 * Each;
  float of_a[16][kK], of_b[kK][8]; // [row][k], [k][column]
  const auto spread = [&](unsigned word, auto put) {
    const uint64_t* words = host::exchange(word);
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < Each; ++i) put(lane / 4, lane % 4 * Each + i, at(unsigned(words[lane]), i));
  };
  for (int i = 0; i < 4; ++i) spread(a[i], [&](int g, int k, float x) { of_a[g + i % 2 * 8][k + i / 2 * kK / 2] = x; });
  for (int i = 0; i < 2; ++i) spread(i ? b1 : b0, [&](int g, int k, float x) { of_b[k + i * kK / 2][g] = x; });
  const int lane = int(threadIdx.x % 32);
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < kK; ++k) d[i] += of_a[lane / 4 + i / 2 * 8][k] * of_b[k][lane % 4 * 2 + i % 2];
}
template <class Element> void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  mma<2>(d, a, b0, b1, [](unsigned word, int i) {
    const unsigned short bits = (unsigned short)(word >> 16 * i);
    return elementAt<Element>((const unsigned char*)&bits);
  });
}
inline void mma_m16n8k32_e4m3(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  mma<4>(d, a, b0, b1,
         [](unsigned word, int i) { return cvt_f32_f16((unsigned short)cvt_f16x2_e4m3x2<0>(word >> 8 * i & 0xff)); });
}
inline void mma_m16n8k8_tf32(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  mma<1>(d, a, b0, b1, [](unsigned word, int) { return __uint_as_float(word & ~0x1fffu); });
}
template <int N> void touch(float (&d)[N][4]) { asm volatile("" ::"r"(&d) : "memory"); }
inline void wgmma_fence() {}
template <class Element, int N, int MnA, int MnB, class D>
void wgmma_ss(D& d, unsigned long long a, unsigned long long b, int accumulate) {
  host::add({N, &d[0][0], false, 0, a, b, bool(MnA), bool(MnB), accumulate != 0, elementAt<Element>});
}
template <class Element, int N, int MnB, class D>
void wgmma_rs(D& d, const unsigned (&a)[4], unsigned long long b, int accumulate) {
  host::add({N, &d[0][0], true, host::keep(a), 0, b, false, bool(MnB), accumulate != 0, elementAt<Element>});
}
void wgmma_commit_group();
template <int Pending> void wgmma_wait_group() { host::waitForProducts(Pending); }

} // namespace ptx
} // namespace attnc
