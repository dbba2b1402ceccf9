// Appends the new rows of K and V to K and V, ahead of a kernel that attends to them. Decode kernels append by
// themselves, except in ragged batches and to K and V of e4m3. For K and V of e4m3, new rows of 16 bits are divided by
// the factor of their head and rounded (kFp8Kv). New rows of e4m3 are stored as they are (kFp8).
//
// Grid: tiles of kBlockM new rows * kv_heads * batch, in one dimension; for a ragged batch slots * kv_heads. Threads:
// 32 kWarps.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/append.cuh"
#include "algo/sequence.cuh"

namespace attnc::append {

using NewElement = typename Choose<kFp8, E4M3, Element>::Type;
using KvElement = typename Choose<kFp8 || kFp8Kv, E4M3, Element>::Type;

/// Returns the cache of a launch with the new rows of batch entry b: as params_of().
template <class M> ATTNC_DEVICE decltype(auto) new_rows_of(const Cached<ForwardParams>& p, const ModArgs& args, int b) {
  if constexpr (kIsRagged<M>) {
    const long long start = q_start_of<M>(p, args, b);
    CacheParams own = p.cache;
    own.new_k = (const NewElement*)own.new_k + start * own.new_k_stride.row;
    own.new_v = (const NewElement*)own.new_v + start * own.new_v_stride.row;
    return own;
  } else {
    return (p.cache);
  }
}

extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attnc_append(const __grid_constant__ Cached<ForwardParams> launch, const __grid_constant__ ModArgs args) {
  const int tiles = q_tiles_of<Mod, kBlockM>(launch);
  int first = int(blockIdx.x % tiles) * kBlockM;
  const int kv_head = blockIdx.x / tiles % launch.kv_heads;
  int b = blockIdx.x / tiles / launch.kv_heads;
  if constexpr (kIsRagged<Mod>) {
    const RowTile tile = q_tile_in_slot<Mod, kBlockM>(args, first / kBlockM, launch.batch);
    b = tile.b, first = tile.start;
  }
  const ForwardParams& p = params_of<Mod>(launch, args, b);
  if (!has_rows<Mod>(first, p.q_len)) return;
  const int length = kv_length_of<Mod>(p, args, b, kv_head * p.group);
  float inverse_k = 1.f, inverse_v = 1.f;
  if constexpr (kFp8Kv) {
    inverse_k = 1.f / launch.cache.k_scale.of(b, kv_head);
    inverse_v = 1.f / launch.cache.v_scale.of(b, kv_head);
  }
  append_rows<32 * kWarps, NewElement, KvElement>(p, new_rows_of<Mod>(launch, args, b), pages_of(launch, b), length, b,
                                                  kv_head, first, min(first + kBlockM, p.q_len), threadIdx.x, inverse_k,
                                                  inverse_v);
}

} // namespace attnc::append
