// Forward attention with mma.sync and cp.async, for sm_80 and later.
//
//   S = scale Q K^T,  P = softmax(mod(S)),  O = P V,  lse = log sum exp mod(S)
//
// After FlashAttention-2 (Dao, arXiv:2307.08691). A CTA owns kBlockM rows of Q and walks the live KV tiles of kBlockN
// columns. All of its kWarps warps have the same role. A warp owns 16 kRowGroups rows and all columns, so that a row's
// softmax stays within a quad of lanes.
//
// From sm_89 on, Q, K and V may be E4M3 (kFp8), with factors for each head or block of rows. Weights are E4M3 as well,
// and V is transposed in registers: tile/gemm_sm89.cuh. If O has more than 128 columns, no registers are left for that.
// Weights are then F16, and V is converted to F16 (tile/gemm_e4m3.cuh).
//
//   shared memory   bytes                                        lifetime
//   QPart           kBlockM rows, the wider of Q and O           Q: whole kernel; then staging of a warp's rows of O
//   KPart           kBlockN rows of K                            filled for step i + 1 while the softmax of step i runs
//   VPart           kBlockN rows of V                            filled while S = Q K^T runs
//
//   barrier                  when                                what it guarantees
//   cp.async, __syncthreads  before S = Q K^T of a step          K is ready; V of the step before is free
//   cp.async, __syncthreads  after it                            V is ready; K is free
//   cp.async, __syncthreads  after the last step                 Q is free, or its copy has ended
//
// Grid: q tiles * q_heads * batch, in one dimension. Threads: 32 kWarps; kSharedBytes of dynamic shared memory.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/apply_mod.cuh"
#include "algo/copy_pages.cuh"
#include "algo/kv_walk.cuh"
#include "algo/scaled.cuh"
#include "algo/softmax.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/copy_tile.cuh"
#include "tile/gemm_e4m3.cuh"
#include "tile/gemm_mma.cuh"
#include "tile/gemm_sm89.cuh"
#include "tile/shared_memory.cuh"

namespace attnc::sm80 {

constexpr int kThreads = 32 * kWarps;
constexpr int kRowGroups = kBlockM / (16 * kWarps); // groups of 16 rows per warp
constexpr int kWarpRows = 16 * kRowGroups;
static_assert(kWarpRows * kWarps == kBlockM, "a warp owns whole groups of 16 rows");
static_assert(kBlockN % (kFp8 ? 32 : 16) == 0, "P V takes 32 bytes of columns at a time");

using Input = typename Choose<kFp8, E4M3, Element>::Type; // of Q, K and V
using Weight = typename Choose<kFp8 && (kHeadDimV > 128), F16, Input>::Type;
using QTile = PaddedTile<Input, kBlockM, kHeadDimQk>;
using KTile = PaddedTile<Input, kBlockN, kHeadDimQk>;
using VTile = PaddedTile<Input, kBlockN, kHeadDimV>;
using OutTile = PaddedTile<Element, kBlockM, kHeadDimV>;
struct QPart : SharedPart<QPart, (QTile::kBytes > OutTile::kBytes ? QTile::kBytes : OutTile::kBytes)> {};
struct KPart : SharedPart<KPart, KTile::kBytes> {};
struct VPart : SharedPart<VPart, VTile::kBytes> {};
using Memory = SharedMemory<QPart, KPart, VPart>;
static_assert(Memory::kBytes == kSharedBytes, "the host asks for another size: src/plan");

using Params = typename ParametersOf<ScaledIf<ForwardParams, kFp8>, kPageSize != 0>::Type;
using Scores = Fragment<kRowGroups, kBlockN>;
using Out = Fragment<kRowGroups, VTile::kColumns>;
using RowSoftmax = Softmax<Out::kRows, typename Choose<Same<Weight, E4M3>::value, WeightsOfE4M3, WeightsFromOne>::Type>;
constexpr int kAccumulators = (sizeof(Scores) + sizeof(Out)) / sizeof(float); // registers per thread

/// O += P V. `factor`: of V, if it is E4M3; `unit`: of O.
template <class V> ATTNC_DEVICE void add_product(Out& o, const Scores& p, V v, float factor, float& unit) {
  if constexpr (!Same<typename V::Element, E4M3>::value) {
    mma::gemm<kTf32>(o, p, v);
  } else if constexpr (Same<Weight, typename V::Element>::value) {
    PackedFragment<Weight, kRowGroups, V::kRows> weights;
    weights.pack(p);
    mma::gemm(o, weights, v, factor);
  } else {
    if (factor != unit) {
      const float by = __fdividef(unit, factor);
      o.for_each([&](float& element, int) { element *= by; });
      unit = factor;
    }
    e4m3::multiply_values(o, p, v);
  }
}

/// Normalises a warp's rows of O, stages them in `rows` and stores them. Stores lse and row maximum directly. `factor`:
/// of O.
ATTNC_DEVICE void store(const Out& o, RowSoftmax& softmax, const ForwardParams& p, const ModArgs& args,
                        const Place<kRowGroups>& place, PaddedTile<Element, kWarpRows, kHeadDimV> rows, int q_start,
                        float factor) {
#pragma unroll
  for (int r = 0; r < Out::kRows; ++r) {
    const float alone = finish_row(softmax, r, p, args, place);
    const float normalise = kFp8 || kDrops<Mod> ? alone * factor : alone;
    Element* line = rows.elements(Out::row(r)) + (kFp8 ? 2 : 1) * Out::first_column();
#pragma unroll
    for (int n = 0; n < Out::kGroups; n += kFp8 ? 2 : 1)
      if constexpr (kFp8)
        *(uint2*)(line + 8 * n) = v_columns<Element>(o, r, n, normalise);
      else
        store2(line + 8 * n, o.at(r, n, 0) * normalise, o.at(r, n, 1) * normalise);
  }
  store_row_outputs(p, args, place, softmax);
  __syncwarp();
  Element* out = (Element*)p.out + place.b * p.out_stride.batch + place.h * p.out_stride.head;
  copy_out(rows, out, p.out_stride.row, q_start, p.q_len, p.vectors);
}

// NOTE: with the second number, ptxas takes the registers it needs; without it, ptxas spills to fit one more CTA on an
// SM.
extern "C" __global__ void __launch_bounds__(kThreads, kAccumulators > 128 && kWarps == 4 ? 2 : 1)
    attnc_forward(const __grid_constant__ Params launch, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  const unsigned shared = ptx::shared_address(dynamic_shared);
  const QTile q_tile = {shared + Memory::offset_of<QPart>()};
  const KTile k_tile = {shared + Memory::offset_of<KPart>()};
  const VTile v_tile = {shared + Memory::offset_of<VPart>()};

  // Later rows see more keys under causal masks, so the longest rows start first.
  const auto [b, h, q_start] = q_tile_from_end<Mod, kBlockM>(launch, args, blockIdx.x);
  const ForwardParams& p = params_of<Mod, Input>(launch, args, b);
  if (!has_rows<Mod>(q_start, p.q_len)) return;
  const int warp_row = int(threadIdx.x) / 32 * kWarpRows;

  const Input* q = (const Input*)p.q + b * p.q_stride.batch + h * p.q_stride.head;
  const Input* k = (const Input*)p.k + b * p.k_stride.batch + h / p.group * p.k_stride.head;
  const Input* v = (const Input*)p.v + b * p.v_stride.batch + h / p.group * p.v_stride.head;
  // NOTE: if S and O take most registers, and lists some more, head addresses are computed again for each tile: kept in
  // registers, they would make the main loop spill. Elsewhere that costs up to 7 %.
#ifdef __CUDA_ARCH__
  constexpr int kArch = __CUDA_ARCH__;
#else
  constexpr int kArch = 0; // the host's pass of nvcc
#endif
  constexpr bool kFormAnew = kFp8 || kAccumulators > (kBlockSparse ? 128 : kArch < 900 ? 160 : 180);
  const int kv_head = h / p.group, live_rows = kv_length_of<Mod>(p, args, b, h);
  const auto kv_len = [&] { return kHasLengths<Mod> ? live_rows : p.kv_len; }; // NOTE: a variable costs registers
  const auto load_pages = [&](auto tile, const void* pool, const Strides& strides, int start) {
    PageBlock<kPageSize, kBlockN> pages;
    pages.look_up(pages_of(launch, b), start, kv_len());
    const Input* head = (const Input*)pool + ptx::opaque(kv_head) * strides.head;
    copy_in<kThreads>(tile, pages, head, strides, kv_len(), p.vectors);
  };
  const auto load_k = [&](int start) {
    if constexpr (kPageSize) return load_pages(k_tile, p.k, p.k_stride, start);
    const Input* head =
        kFormAnew ? (const Input*)p.k + b * p.k_stride.batch + ptx::opaque(kv_head) * p.k_stride.head : k;
    copy_in<kThreads>(k_tile, head, p.k_stride.row, start, kv_len(), p.vectors);
  };
  const auto load_v = [&](int start) {
    if constexpr (kPageSize) return load_pages(v_tile, p.v, p.v_stride, start);
    const Input* head =
        kFormAnew ? (const Input*)p.v + b * p.v_stride.batch + ptx::opaque(kv_head) * p.v_stride.head : v;
    copy_in<kThreads>(v_tile, head, p.v_stride.row, start, kv_len(), p.vectors);
  };

  const auto walk = walk_kv<Mod, kBlockN, kBlockSparse>(p, args, b, h, q_start, min(q_start + kBlockM, p.q_len));
  int start = walk.count ? walk.start_of(0) : 0;
  copy_in<kThreads>(q_tile, q, p.q_stride.row, q_start, p.q_len, p.vectors);
  if (walk.count) load_k(start);
  ptx::cp_async_commit_group();

  const float scale = kFp8 ? p.scale * scale_of_products<false>(launch, b, h, kv_head, q_start) : p.scale;
  Place<kRowGroups> place(p, args, b, h, q_start, warp_row + Scores::row(0), scale);
  Scores s;
  Out o;
  o.fill(0.f);
  RowSoftmax softmax;
  float unit = 1.f; // of O: a factor of V
#pragma unroll 1
  for (int i = 0; i < walk.count; ++i) {
    // NOTE: ptxas would turn a known distance between steps into sixteen 64-bit pointers (strength reduction), and
    // spill.
    const int next = ptx::opaque(i + 1 < walk.count ? walk.start_of(i + 1) : start);
    ptx::cp_async_wait_group<0>();
    __syncthreads();
    load_v(start);
    ptx::cp_async_commit_group();

    const StepScales scales = scales_of_step(launch, b, kv_head, start, p.kv_len);
    s.fill(0.f);
    mma::gemm<kTf32>(s, q_tile.rows<kWarpRows>(warp_row), transposed(k_tile)); // S = Q K^T

    ptx::cp_async_wait_group<0>();
    __syncthreads();
    if (i + 1 < walk.count) load_k(next);
    ptx::cp_async_commit_group();

    if constexpr (kFp8)
      if (scales.k != 1.f) s.for_each([&](float& element, int) { element *= scales.k; });
    StepBias<Mod::Exponents, Scores::kRows> bias(softmax, place);
    place.q_first = ptx::opaque(place.q_first); // NOTE: so values derived from it are not kept in registers
    const Step step = {start, walk.flags_of(i, start)};
    apply_mod(s, p, args, place, step, OwnColumns{}, bias);
    Rescaling<Scores::kRows> rescaling;
    if constexpr (kIsWeight<Mod>) {
      scores_to_weights(s);
    } else {
      follow_maxima<Weight>(s, softmax, bias, place, args, kRowMax || step.flags & kStepFew, rescaling);
      to_exponents(s, bias, place);
      if (rescaling.is_due) o.scale_rows(rescaling.factors);
      WeightSums<Scores::kRows> sums(softmax);
      to_weights<0, Scores::kGroups>(s, sums);
      sums.store(softmax);
    }
    if constexpr (kHasProbMod<Mod>)
      scale_weights<Mod>(s, args, RowSite<Mod, kRowGroups, OwnColumns>{p, args, place, step, {}});
    if constexpr (kDrops<Mod>) drop<kHasOffsets<Mod>>(s, place, place.first_position(args), place.kv_first(step));
    add_product(o, s, v_tile, scales.v, unit); // O += P V
    start = next;
  }

  if constexpr (!kIsRagged<Mod>) { // NOTE: found again, so that they need no registers around the loop
    const HeadTile tile = q_tile_from_end<Mod, kBlockM>(launch, args, ptx::opaque(blockIdx.x));
    place.b = tile.b, place.h = tile.h;
    place.q_first = tile.start + int(ptx::opaque(threadIdx.x)) / 32 * kWarpRows + Scores::row(0);
  }
  // A warp stages its O over rows of Q that only it reads. If a CTA has no steps, Q's copy is still in flight here.
  ptx::cp_async_wait_group<0>();
  __syncthreads();
  store(o, softmax, p, args, place, {shared + Memory::offset_of<QPart>() + warp_row * OutTile::kRowBytes},
        q_start + warp_row, unit * scale_of_v<false>(launch, place.b, place.h / p.group) * place.factor());
}

} // namespace attnc::sm80
