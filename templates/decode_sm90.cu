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
    wgmma::gemm(s, q, transposed(k), 0);
  }
  template <class V> ATTNC_DEVICE static void multiply_v(Out& o, const Scores& p, V v) {
    PackedFragment<Element, 1, kTeamColumns> weights;
    weights.pack(p);
    wgmma::gemm(o, weights, v, 1);
  }
};

/// Whether teams multiply with wgmma. Wider O leaves too few registers, and K and V of e4m3 are converted by warps.
constexpr bool kByWarpgroups = !kFp8Kv && kTeamWarps == 4 && kHeadDimV <= 192;

struct CopiesOfEngine {
  using Products = typename Choose<kByWarpgroups, ProductsOfWarpgroups, ProductsOfWarps>::Type;
  using KTile = SwizzledTile<KvElement, kTeamColumns, kHeadDimQk>;
  using VTile = SwizzledTile<KvElement, kTeamColumns, kHeadDimV>;
  using Params = typename ParametersOf<DecodeParamsSm90, kIsCached>::Type;
  using Boxes = KvBoxes<KTile, VTile, kTeamColumns, kTeamThreads>;
  struct Control : SharedPart<Control, 8 * kTeams * kStages, 8> {};
  static constexpr int kAlign = 1024;

  unsigned barriers;   ///< of this team
  unsigned phases = 0; ///< a bit per slot: the phase to wait for
  Boxes boxes;

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

  ATTNC_DEVICE void load(const Params& p, const Work& work, int i, int column, KTile k, VTile v, int slot) {
    boxes.load<kTeamThreads>(p, work, i, column, k, v, barriers, slot);
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
    Boxes::mend(decode, tile, start, length, k, v);
  }
  ATTNC_DEVICE void release() const { ptx::fence_proxy_async(); }
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_decode(const __grid_constant__ CopiesOfEngine::Params p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  run<CopiesOfEngine>(p, args, dynamic_shared);
}

} // namespace attnc::decode
