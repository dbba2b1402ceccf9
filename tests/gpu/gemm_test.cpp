// The products of templates/tile, every combination of operands, against fp64. One file includes the headers of both
// machines.
#include "gpu.h"

#include "jit/env.h"
#include "jit/loaded_kernel.h"
#include "jit/nvrtc.h"
#include "plan/embedded.h"

#include <fmt/format.h>

#include <cmath>
#include <random>

using namespace attnc;
using namespace attnc::gputest;

namespace {

// One block multiplies a [kM, kK] by b [kK, kN] into d, all dense, f32 in global memory. A form of an operand says how
// it lies in shared memory, or that it is in registers.
constexpr const char* kSource = R"(
#include "attnc_config.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/tma.cuh"
#include "tile/gemm_mma.cuh"
#include "tile/gemm_wgmma.cuh"
#include "tile/shared_memory.cuh"
using namespace attnc;
enum class Form { Rows, Columns, Registers };
constexpr Form kFormA = Form::FORM_A, kFormB = Form::FORM_B;
constexpr int kM = SIZE_M, kN = SIZE_N, kK = SIZE_K;

template <class E, int R, int C> ATTNC_DEVICE void put(PaddedTile<E, R, C> tile, int row, int column, float x) {
  tile.elements(row)[column] = from_float<E>(x);
}
template <class E, int R, int C> ATTNC_DEVICE void put(SwizzledTile<E, R, C> tile, int row, int column, float x) {
  const unsigned at = tile.slab(column / 64) + row * 128 + ((column % 64 / 8) ^ row % 8) * 16 + column % 8 * 2;
  *(E*)__cvta_shared_to_generic(at) = from_float<E>(x);
}
// Fills a tile with a [rows, columns] matrix, or with its transpose.
template <class Tile> ATTNC_DEVICE void fill(Tile tile, const float* x, int rows, int columns, bool transpose) {
  for (int i = threadIdx.x; i < rows * columns; i += blockDim.x)
    if (transpose) put(tile, i % columns, i / columns, x[i]);
    else put(tile, i / columns, i % columns, x[i]);
}
template <class F> ATTNC_DEVICE void load(F& f, const float* x, int width, int first_row) {
  for (int r = 0; r < F::kRows; ++r)
    for (int n = 0; n < F::kGroups; ++n)
      for (int e = 0; e < 2; ++e) f.at(r, n, e) = x[(first_row + F::row(r)) * width + F::column(n, e)];
}
template <class F> ATTNC_DEVICE void store(const F& f, float* x, int width, int first_row) {
  for (int r = 0; r < F::kRows; ++r)
    for (int n = 0; n < F::kGroups; ++n)
      for (int e = 0; e < 2; ++e) x[(first_row + F::row(r)) * width + F::column(n, e)] = f.at(r, n, e);
}
template <bool A> ATTNC_DEVICE auto operand(auto tile) {
  if constexpr ((A ? kFormA : kFormB) == Form::Columns) return transposed(tile);
  else return tile;
}
template <template <class, int, int> class Tile, bool A> struct TileOf {
  static constexpr bool kTransposed = (A ? kFormA : kFormB) == Form::Columns;
  static constexpr int kRows = A ? kM : kK, kColumns = A ? kK : kN;
  using Type = Tile<Element, kTransposed ? kColumns : kRows, kTransposed ? kRows : kColumns>;
  static constexpr int kBytes = Type::kBytes;
  static constexpr int kAlign = 1024;
};

extern "C" __global__ void multiply(const float* a, const float* b, float* d) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  const unsigned shared = ptx::shared_address(dynamic_shared);
  #if USE_WGMMA
  using PartA = TileOf<SwizzledTile, true>;
  using PartB = TileOf<SwizzledTile, false>;
  #else
  using PartA = TileOf<PaddedTile, true>;
  using PartB = TileOf<PaddedTile, false>;
  #endif
  using Memory = SharedMemory<PartA, PartB>;
  const typename PartA::Type tile_a = {shared + Memory::offset_of<PartA>()};
  const typename PartB::Type tile_b = {shared + Memory::offset_of<PartB>()};
  fill(tile_a, a, kM, kK, PartA::kTransposed);
  fill(tile_b, b, kK, kN, PartB::kTransposed);
  __syncthreads();
  const int first_row = USE_WGMMA ? threadIdx.x / 32 * 16 : 0;
  Fragment<USE_WGMMA ? 1 : kM / 16, kN> result;
  result.fill(0.f);
  Fragment<USE_WGMMA ? 1 : kM / 16, kK> left;
  load(left, a, kK, first_row);
  #if USE_WGMMA
  ptx::fence_proxy_async();
  __syncthreads();
  PackedFragment<Element, 1, kK> packed;
  packed.pack(left);
  wgmma::touch(result);
  ptx::wgmma_fence();
  if constexpr (kFormA == Form::Registers) wgmma::start_gemm(result, packed, operand<false>(tile_b), 0);
  else wgmma::start_gemm(result, operand<true>(tile_a), operand<false>(tile_b), 0);
  ptx::wgmma_commit_group();
  ptx::wgmma_wait_group<0>();
  wgmma::touch(result);
  #else
  if constexpr (kFormA == Form::Registers) mma::gemm(result, left, operand<false>(tile_b));
  else mma::gemm(result, operand<true>(tile_a), operand<false>(tile_b));
  #endif
  store(result, d, kN, first_row);
}
)";

struct Shape {
  bool wgmma;
  int m, n, k;
};

/// Multiples of 1/8 from -2 to 2: exact in every dtype, and so are their products and sums.
std::vector<float> matrix(int elements, int seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> eighths(-16, 16);
  std::vector<float> x(static_cast<size_t>(elements));
  for (float& each : x) each = float(eighths(random)) / 8;
  return x;
}

/// The largest error of an element; NaN if one is NaN.
double worstError(const Shape& shape, DType dtype, const char* formA, const char* formB) {
  const std::string arch = gpu()->context.info().arch;
  KernelSource job{.entry = "multiply", .templateName = "gemm_test.cu", .text = kSource, .arch = arch};
  const char* element = dtype == DType::BF16 ? "Bf16" : dtype == DType::F16 ? "F16" : "float";
  std::string config =
      fmt::format("#pragma once\n#include \"tile/element.cuh\"\nnamespace attnc {{ using Element = {}; }}\n"
                  "#define ATTNC_WGMMA_SHAPES(shape) shape({})\n#define FORM_A {}\n#define FORM_B {}\n"
                  "#define SIZE_M {}\n#define SIZE_N {}\n#define SIZE_K {}\n#define USE_WGMMA {}\n",
                  element, shape.n, formA, formB, shape.m, shape.n, shape.k, int(shape.wgmma));
  for (unsigned i = 0; i < plan::kEmbeddedFileCount; ++i)
    job.headers.emplace_back(plan::kEmbeddedFiles[i].name, plan::kEmbeddedFiles[i].text);
  job.headers.emplace_back("attnc_config.cuh", config);
  CompiledKernel result = take(jit::Nvrtc(jit::Env::read()).compile(job));
  constexpr int64_t kBytes = 96 * 1024;
  jit::LoadedKernel kernel =
      take(jit::LoadedKernel::load({{result.cubin.data(), result.cubin.size()}, "multiply", arch, kBytes}));

  const auto a = matrix(shape.m * shape.k, 1), b = matrix(shape.k * shape.n, 2);
  std::vector<float> d(size_t(shape.m * shape.n), NAN);
  device::Buffer onDevice[3];
  const std::vector<float>* hosts[] = {&a, &b, &d};
  void* pointers[3];
  void* arguments[3];
  for (int i = 0; i < 3; ++i) {
    const size_t bytes = hosts[i]->size() * sizeof(float);
    onDevice[i] = take(device::Buffer::allocate(bytes));
    take(onDevice[i].upload(hosts[i]->data(), bytes));
    pointers[i] = onDevice[i].data();
    arguments[i] = &pointers[i];
  }
  take(kernel.launch({.grid = {1, 1, 1}, .block = {shape.wgmma ? 128u : 32u, 1, 1}, .dynamicSharedBytes = kBytes},
                     gpu()->stream.get(), arguments));
  take(gpu()->stream.synchronize());
  take(onDevice[2].download(d.data(), d.size() * sizeof(float)));

  double worst = 0;
  for (int i = 0; i < shape.m; ++i)
    for (int j = 0; j < shape.n; ++j) {
      double want = 0;
      for (int k = 0; k < shape.k; ++k) want += double(a[i * shape.k + k]) * b[k * shape.n + j];
      const double error = std::fabs(d[i * shape.n + j] - want);
      if (!(error <= worst)) worst = error;
    }
  return worst;
}

} // namespace

GPU_TEST_CASE("products by mma.sync take either operand as it lies, transposed, or from registers", "[gemm]") {
  for (DType dtype : {DType::BF16, DType::F16, DType::F32})
    for (const char* a : {"Rows", "Columns", "Registers"})
      for (const char* b : {"Rows", "Columns"}) {
        INFO(dtypeName(dtype) << ", A " << a << ", B " << b);
        CHECK(worstError({false, 32, 48, 80}, dtype, a, b) == 0);
      }
}

GPU_TEST_CASE("products by wgmma take either operand as it lies, transposed, or from registers", "[gemm]") {
  if (gpu()->context.info().arch != "sm_90a") {
    WARN("SKIPPED: needs a Hopper GPU");
    return;
  }
  for (DType dtype : {DType::BF16, DType::F16})
    for (const char* a : {"Rows", "Columns", "Registers"})
      for (const char* b : {"Rows", "Columns"})
        for (int n : {64, 128}) {
          INFO(dtypeName(dtype) << ", A " << a << ", B " << b << ", N " << n);
          CHECK(worstError({true, 64, n, 128}, dtype, a, b) == 0);
        }
}
