// Split-KV forward attention with mma.sync and cp.async, for sm_80 and later: few queries over long KV.
//
//   S = scale Q K^T,  P = softmax(mod(S)),  O = P V,  lse = log sum exp mod(S)
//
// algo/decode.cuh has roles, shared memory and barriers. Here a team's threads copy its rows of K and V, of any layout.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/copy_pages.cuh"
#include "algo/decode.cuh"

namespace attnc::decode {

/// Rows of K or V of one (batch, KV head): where their blocks lie. If paged: where the KV head's pool begins.
struct KvRows {
  const KvElement* first;
  long long stride;
  ATTNC_DEVICE KvRows(const void* tensor, const Strides& strides, const PackedTile& tile,
                      bool in_pages = kPageSize != 0)
      : first((const KvElement*)tensor + (in_pages ? 0 : tile.b) * strides.batch + tile.kv_head * strides.head +
              tile.start.kv() * strides.row),
        stride(strides.row) {}
  /// Returns the block at `start`, a multiple of kTeamColumns.
  ATTNC_DEVICE const KvElement* block(int start) const { return first + start * stride; }
};

struct CopiesOfThreads {
  using Products = ProductsOfWarps;
  using KTile = PaddedTile<KvElement, kTeamColumns, kHeadDimQk>;
  using VTile = PaddedTile<KvElement, kTeamColumns, kHeadDimV>;
  using Params = typename ParametersOf<DecodeParams, kIsCached>::Type;
  struct Control : SharedPart<Control, 0> {};
  static constexpr int kAlign = 16;

  ATTNC_DEVICE explicit CopiesOfThreads(unsigned) {}

  ATTNC_DEVICE void load(const Params& decode, const Work& work, int i, int column, KTile k_tile, VTile v_tile,
                         int) const {
    const ForwardParams& p = decode.forward;
    const PackedTile& tile = work.tile;
    const int start = work.walk.start_of(i) + column, length = work.walk.length;
    const unsigned thread = threadIdx.x % kTeamThreads;
    const KvRows k(p.k, p.k_stride, tile), v(p.v, p.v_stride, tile);
    if constexpr (kIsCached) {
      PageBlock<kPageSize, kTeamColumns> pages;
      pages.look_up(pages_of(decode, tile.b), start, length);
      const int first = first_new(p, length);
      const auto load_rows = [&](auto to, const KvRows& rows, const Strides& strides, const void* fresh,
                                 const Strides& new_strides) {
        if (kAppends && start + kTeamColumns > first)
          copy_in<kTeamThreads>(to, pages, rows.first, strides, KvRows(fresh, new_strides, tile, false).first,
                                new_strides.row, first, length, p.vectors, thread);
        else
          copy_in<kTeamThreads>(to, pages, rows.first, strides, length, p.vectors, thread);
      };
      const CacheParams& cache = cache_of(decode);
      load_rows(k_tile, k, p.k_stride, cache.new_k, cache.new_k_stride);
      load_rows(v_tile, v, p.v_stride, cache.new_v, cache.new_v_stride);
    } else {
      copy_in<kTeamThreads>(k_tile, k.block(start), k.stride, 0, length - start, p.vectors, thread);
      copy_in<kTeamThreads>(v_tile, v.block(start), v.stride, 0, length - start, p.vectors, thread);
    }
  }
  ATTNC_DEVICE void wait(int i, int issued, int) const {
    if (issued - i == kStages - 1)
      ptx::cp_async_wait_group<kStages - 2>();
    else
      ptx::cp_async_wait_group<0>();
  }
  ATTNC_DEVICE void mend(const Params&, const PackedTile&, int, int, KTile, VTile) const {}
  ATTNC_DEVICE void release() const {}
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_decode(const __grid_constant__ CopiesOfThreads::Params p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  run<CopiesOfThreads>(p, args, dynamic_shared);
}

} // namespace attnc::decode
