// KV tiles add their dQ to a Q tile in turns, by ascending index. The first one stores, so sums need no zeroing; the
// others add after it. If equal launches must give equal bits (kDeterministic), each waits for its predecessor.
//
// No deadlock: a CTA only waits for CTAs of lower index. GPUs launch these first; CUDA does not promise it, but all
// kernels whose CTAs take turns rely on it. Walks go down along Q (algo/step_walk.cuh): all CTAs of a head begin with
// its last rows, and each stays one add behind the CTA before it. With lists this takes DescendingBlocks.
//
// With lists, turns are counted from the bits of algo/visits.cuh.
#pragma once

#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/q_walk.cuh"
#include "algo/visits.cuh"

namespace attnc {

/// Returns how many of the KV tiles before the one at `kv_start` visit the step at `q_start` < q_len, according to
/// walk_q(). p: params_of() of launch. Called by a whole warp; all lanes get the same.
///
/// With bounds: walk_q() visits a Q tile if four conditions hold. Each depends on an edge that moves in one direction
/// along KV. So the KV tiles that visit a Q tile are an interval, and the edge that moves towards 0 gives the first of
/// them.
template <class M, int Size, bool Lists, class Args>
ATTNC_DEVICE int turn_of(const BackwardParams& p, const BackwardParams& launch, const unsigned* visits,
                         const Args& args, const typename M::Head& head, int b, int h, int q_start, int kv_start) {
  const ForwardParams& f = p.forward;
  const int tile = kv_start / kBlockN;
  if constexpr (Lists) {
    const BlockLists& lists = lists_of<M>(f);
    const int block = kv_start >> log2_of(lists.kv_block), tiles_of_block = lists.kv_block / kBlockN;
    const long long row = b * lists.batch_stride + h * lists.head_stride + (q_start >> log2_of(lists.q_block));
    const unsigned* const words = visits + row * words_of_visits(launch.forward.kv_len, lists);
    int before = 0;
    for (int i = threadIdx.x % 32; i <= block / 32; i += 32)
      before += __popc(i < block / 32 ? words[i] : words[i] & ((1u << block % 32) - 1));
    before = __reduce_add_sync(0xffffffffu, before);
    return before * tiles_of_block + tile % tiles_of_block;
  } else if constexpr (M::kHasBounds) {
    const int row = M::kBeginFalls ? q_start + Size - 1 : q_start;
    if (row >= f.q_len) return tile;
    const int q_idx = position_of<M>(args, head, row);
    return tile - max(M::bounds(args, head, b, h, q_idx, q_idx + 1).begin, 0) / kBlockN; // SEAM(bounds)
  } else {
    return tile;
  }
}

} // namespace attnc
