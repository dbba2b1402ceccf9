// One thread per consumer warpgroup of a Hopper backward kernel adds its dQ to the sums in global memory, by bulk
// copies.
#pragma once

#include "algo/backward_sm90.cuh"
#include "algo/d_q_sums.cuh"
#include "ptx/tma.cuh"
#include "ptx/turn.cuh"

namespace attnc::sm90 {

template <class Memory> struct DqStorer {
  const BackwardParamsSm90& p;
  unsigned shared;
  int group; ///< whose dQ

  /// Adds dQ, once it is in shared memory, to a tile of Q, counted over all heads, and arrives at dq_empty when it has
  /// been read. `turn`: turn_of() if kTakesTurns, else 1. At turn 0 dQ is stored instead.
  ATTNC_DEVICE void add(int tile, int turn) const {
    const unsigned from = shared + Memory::template offset_of<DqPart<DqSums>>() + group * DqSums::kPartBytes;
    int* const next = p.turns + 2 * (long long)tile + group; // whose turn it is
    if (kTakesTurns && turn > 0) {
      for (int now = 0; now < (kDeterministic ? turn : 1);) now = ptx::load_acquire(next);
      ptx::fence_proxy_async_global();
    }
    float* const to = DqSums::part(p.d_q_sums, tile, group);
    if (turn > 0)
      ptx::bulk_add(to, from, DqSums::kPartBytes);
    else
      ptx::bulk_store(to, from, DqSums::kPartBytes);
    ptx::bulk_commit_group();
    ptx::bulk_wait_read();
    ptx::mbarrier_arrive(Barriers<Memory, DqEmpty>{shared}[group]);
    if (turn == 0 || kDeterministic) {
      ptx::bulk_wait();
      ptx::fence_proxy_async_global();
      if constexpr (kBlockSparse) // a block listed twice must not take a turn back
        ptx::max_release(next, turn + 1);
      else
        ptx::store_release(next, turn + 1);
    }
  }
};

} // namespace attnc::sm90
