// Lists the steps along KV that a decode kernel visits, for masks whose live columns are no interval. The decode kernel
// deals these steps evenly, and reads K and V of no other steps. This kernel only reads captured tensors.
//
// Each launch runs it, because lengths and positions of sequences change from launch to launch, so kept lists would be
// stale. It must be a separate kernel: a CTA of the decode kernel cannot find its own steps before it knows how many
// steps of all sequences live.
//
// A CTA takes 32 steps of an item (algo/decode_work.cuh), each warp some of them, one after the other: does any row
// have a live column? Dead steps cost all rows; live ones mostly cost the first. The CTA's result is a word of bits.
// The last CTA of an item to arrive turns its words into a list, in order.
//
//   barrier         what it guarantees
//   __syncthreads   the bits of all warps are ready
//   __syncthreads   the word is stored; all threads know whether this CTA is last
//   __syncthreads   two for each 32 kWarps words: sums of the warps are ready; are free
//
// Grid: items * words, in one dimension. Threads: 32 kWarps.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/decode_work.cuh"
#include "params_decode.cuh"
#include "ptx/global_memory.cuh"

namespace attnc::decode_lists {

constexpr int kThreads = 32 * kWarps;
constexpr int kSteps = 32 / kWarps; ///< per warp
static_assert(kSteps * kWarps == 32 && kBlockN % 32 == 0, "a word has a bit for each step; lanes take columns evenly");

using Items = DecodeItems<Mod, kBlockM, kBlockN>;

/// Whether some row of the tile sees one of the kBlockN columns from `start` on. Called by a whole warp. The last token
/// is tested first, because it mostly sees what the others see.
ATTNC_DEVICE bool lives(const PackedParams& p, const ModArgs& args, const PackedTile& tile, int start, int length) {
  for (int i = tile.rows - 1; i >= 0; --i) {
    const int h = tile.head(p, i);
    const Mod::Head head = Mod::head(args, tile.b, h); // SEAM(head)
    const int q_idx = q_offset<Mod>(args, head) + tile.token(p, i);
    const Mod::Row row = Mod::row(args, head, tile.b, h, q_idx, float(q_idx)); // SEAM(row)
    bool seen = false;
#pragma unroll
    for (int j = 0; j < kBlockN; j += 32) {
      const int kv_idx = min(start + j + int(threadIdx.x % 32), length - 1);
      const Mod::Col col = Mod::col(args, head, tile.b, h, kv_idx, float(kv_idx), 0.f); // SEAM(col)
      seen |= Mod::mask(args, head, row, col, {tile.b, h, q_idx, kv_idx});              // SEAM(mask)
    }
    if (__any_sync(0xffffffffu, seen)) return true;
  }
  return false;
}

/// Writes the positions of the set bits of `count` words to `index`, ascending. Returns how many there are. Called by
/// the whole CTA.
ATTNC_DEVICE int compact(int* index, const unsigned* words, int count, int* shared) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int total = 0;
  for (int first = 0; first < count; first += kThreads) {
    const int i = first + int(threadIdx.x);
    unsigned bits = i < count ? ptx::ld_global_cg(words + i) : 0;
    const int own = __popc(bits);
    int upto = own; // sum over the warp up to and including this lane
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int below = __shfl_up_sync(0xffffffffu, upto, distance);
      if (lane >= distance) upto += below;
    }
    if (lane == 31) shared[warp] = upto;
    __syncthreads();
    int at = total + upto - own;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) at += shared[w];
      total += shared[w];
    }
    for (; bits; bits &= bits - 1) index[at++] = 32 * i + __ffs(bits) - 1;
    __syncthreads();
  }
  return total;
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_decode_lists(const __grid_constant__ DecodeListsParams lists, const __grid_constant__ ModArgs args) {
  __shared__ int shared[kWarps];
  __shared__ bool is_last;
  const PackedParams& p = lists.forward;
  const int item = blockIdx.x / lists.words_of_item, first = int(blockIdx.x % lists.words_of_item) * 32;
  const PackedTile tile = Items(p).tile(p, args, item);
  const int length = kv_length_of<Mod>(p, args, tile.b, tile.kv_head * p.group);
  const int warp = threadIdx.x / 32;
  unsigned bits = 0;
#pragma unroll 1
  for (int i = 0; i < kSteps; ++i) {
    const int start = (first + warp * kSteps + i) * kBlockN;
    if (start < length && lives(p, args, tile, start, length)) bits |= 1u << (warp * kSteps + i);
  }
  if (threadIdx.x % 32 == 0) shared[warp] = int(bits);
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < kWarps; ++w) bits |= unsigned(shared[w]);
    lists.words[blockIdx.x] = bits;
    is_last = ptx::atom_add_acq_rel(lists.arrived + item, 1) == lists.words_of_item - 1;
    if (is_last) lists.arrived[item] = 0;
  }
  __syncthreads();
  if (!is_last) return;
  const int count = compact(lists.index + (long long)item * lists.words_of_item * 32,
                            lists.words + (long long)item * lists.words_of_item, lists.words_of_item, shared);
  if (threadIdx.x == 0) lists.count[item] = count;
}

} // namespace attnc::decode_lists
