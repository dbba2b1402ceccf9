// Split-KV forward attention with TMA, and mma.sync or wgmma, for sm_90a: few queries over long KV.
//
//   S = scale Q K^T,  P = softmax(mod(S)),  O = P V,  lse = log sum exp mod(S)
//
// algo/decode.cuh has roles, shared memory and barriers. Here TMA loads K and V: boxes of 2 KiB and more load 8 %
// faster than with cp.async, and cost a warp next to nothing. With K and V of 16 bits, a tile of 64 rows belongs to a
// warpgroup, which multiplies with wgmma; with E4M3, four warps convert them and multiply with mma.sync.
//
//   barrier       completed by                                        arrivals   waited for by
//   full          the team's first thread: boxes of K and V are       1          the team
//   (per slot)    requested, or have no row; their bytes
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/decode.cuh"
#include "algo/decode_copies_sm90.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/gemm_wgmma.cuh"
#include "tile/request_tile.cuh"

namespace attnc::decode {

/// ProductsOfWarps (algo/decode.cuh) with wgmma, for 16 bits: used when a team is a whole warpgroup of 64 rows.
struct ProductsOfWarpgroups {
  using QTile = SwizzledTile<Element, kBlockM, kHeadDimQk>;
  template <class K> ATTNC_DEVICE static void multiply_k(Scores& s, QTile q, int, K k) {
    wgmma::touch(s);
    ptx::wgmma_fence();
    wgmma::start_gemm(s, q, transposed(k), 0);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    wgmma::touch(s);
  }
  template <class V> ATTNC_DEVICE static void multiply_v(Out& o, const Scores& p, V v) {
    PackedFragment<Element, 1, kTeamColumns> weights;
    weights.pack(p);
    wgmma::touch(o);
    ptx::wgmma_fence();
    wgmma::start_gemm(o, weights, v, 1);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    wgmma::touch(o);
  }
};

/// Whether teams multiply with wgmma. Wider O leaves too few registers, and K and V of e4m3 are converted by warps.
constexpr bool kByWarpgroups = !kFp8Kv && kTeamWarps == 4 && kHeadDimV <= 192;

struct CopiesOfEngine {
  using Products = typename Choose<kByWarpgroups, ProductsOfWarpgroups, ProductsOfWarps>::Type;
  using KTile = SwizzledTile<KvElement, kTeamColumns, kHeadDimQk>;
  using VTile = SwizzledTile<KvElement, kTeamColumns, kHeadDimV>;
  using Params = typename ParametersOf<DecodeParamsSm90, kIsCached>::Type;
  struct Control : SharedPart<Control, 8 * kTeams * kStages, 8> {};
  static constexpr int kAlign = 1024;
  static constexpr int kRowsOfPage = kPageSize ? kPageSize : 1; // unused without pages
  static constexpr int kBoxRows = kPageSize && kPageSize < kTeamColumns ? kPageSize : kTeamColumns;
  static constexpr int kBoxes = kTeamColumns / kBoxRows, kSlabs = KTile::kSlabs + VTile::kSlabs;
  static_assert(kBoxRows % 8 == 0, "boxes are whole, and so is their swizzle");

  /// Steps whose pages a warp holds, plus as many behind them: each lane has the page of one box of one step.
  static constexpr int kStepsKnown = 32 / kBoxes;

  unsigned barriers;   ///< of this team
  unsigned phases = 0; ///< a bit per slot: the phase to wait for
  int page = 0, page_after = 0;

  /// Called by the whole CTA.
  ATTNC_DEVICE explicit CopiesOfEngine(unsigned control)
      : barriers(control + threadIdx.x / kTeamThreads * kStages * 8) {
    if (threadIdx.x % kTeamThreads == 0) {
      for (int i = 0; i < kStages; ++i) ptx::mbarrier_init(full_of(i), 1);
      ptx::fence_mbarrier_init();
    }
    __syncthreads();
  }
  ATTNC_DEVICE unsigned full_of(int slot) const { return barriers + 8 * slot; }

  /// Returns the page of this lane's box in the steps from `first` on; -1, which loads zeros, if there is no page.
  ATTNC_DEVICE int page_of(const int* table, const Work& work, int first, int column) const {
    const int lane = int(threadIdx.x % 32), i = first + lane / kBoxes;
    if (i >= work.walk.count) return -1;
    const int position = work.walk.start_of(i) + column + lane % kBoxes * kBoxRows;
    return position < work.walk.length ? table[position / kRowsOfPage] : -1;
  }

  // NOTE: not KvBoxes::load(), with which ptxas orders integer instructions of tiles of 32 and 64 rows in another way.
  ATTNC_DEVICE void load(const Params& p, const Work& work, int i, int column, KTile k, VTile v, int slot) {
    const unsigned thread = threadIdx.x % kTeamThreads;
    if (thread >= 32) return;
    const PackedTile& tile = work.tile;
    const int start = work.walk.start_of(i) + column;
    const unsigned full = full_of(slot), box = thread % kBoxes;
    int row = tile.start.kv() + start, k_batch = tile.b * p.k_batch_step, v_batch = tile.b * p.v_batch_step;
    if constexpr (kPageSize != 0) {
      if (i % kStepsKnown == 0) { // loaded well before their use, except for an item's first steps
        const int* table = pages_of(p, tile.b);
        page = i == 0 ? page_of(table, work, 0, column) : page_after;
        page_after = page_of(table, work, i + kStepsKnown, column);
      }
      row = (start + int(box) * kBoxRows) % kRowsOfPage;
      k_batch = v_batch = __shfl_sync(0xffffffffu, page, i % kStepsKnown * kBoxes + box);
    }
    if (start >= work.walk.length) { // no row
      if (thread == 0) ptx::mbarrier_arrive(full);
      return;
    }
    if constexpr (kBoxes == 1) {
      if (thread != 0) return;
      ptx::mbarrier_arrive_expect_tx(full, KTile::kBytes + VTile::kBytes);
      request_tile(k, p.k, full, row, tile.kv_head, k_batch);
      request_tile(v, p.v, full, row, tile.kv_head, v_batch);
      return;
    }
    if (thread == 0) ptx::mbarrier_arrive_expect_tx(full, KTile::kBytes + VTile::kBytes);
    __syncwarp();
    constexpr int kLanes = 32 / kBoxes * kBoxes; // a lane keeps its box
#pragma unroll
    for (int first = 0; first < kBoxes * kSlabs; first += kLanes) {
      const int slab = (first + int(thread)) / kBoxes;
      if (slab >= kSlabs || int(thread) >= kLanes) continue;
      const bool is_k = slab < KTile::kSlabs;
      const int of = is_k ? slab : slab - KTile::kSlabs;
      const unsigned to = (is_k ? k.slab(of) : v.slab(of)) + box * kBoxRows * KTile::kRowBytes;
      ptx::tma_load_4d(to, is_k ? p.k : p.v, full, of * KTile::kSlabColumns, row, tile.kv_head,
                       is_k ? k_batch : v_batch);
    }
  }

  ATTNC_DEVICE void wait(int i, int, int slot) {
    if (i == 0) {
      ptx::cp_async_wait_group<0>();
      if constexpr (kByWarpgroups) ptx::fence_proxy_async(); // wgmma reads these rows of Q
    }
    ptx::mbarrier_wait(full_of(slot), phases >> slot & 1);
    phases ^= 1u << slot;
  }

  ATTNC_DEVICE void mend(const Params& decode, const PackedTile& tile, int start, int length, KTile k, VTile v) const {
    KvBoxes<KTile, VTile, kTeamColumns, kTeamThreads>::mend(decode, tile, start, length, k, v);
  }
  ATTNC_DEVICE void release() const { ptx::fence_proxy_async(); }
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_decode(const __grid_constant__ CopiesOfEngine::Params p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  run<CopiesOfEngine>(p, args, dynamic_shared);
}

} // namespace attnc::decode
