// What the Hopper backward kernels share whose consumers keep dK and dV of 64 rows in registers and walk rows of Q: the
// rows of K and V of a consumer, and the storer, which adds dQ to the sums in global memory.
#pragma once

#include "algo/backward_parts_sm90.cuh"
#include "algo/backward_sm90.cuh"
#include "algo/d_q_sums.cuh"
#include "ptx/tma.cuh"
#include "ptx/turn.cuh"

namespace attnc::sm90 {

/// See ConsumerParts.
template <class Self, class Memory, bool Tight>
struct RowConsumerParts : ConsumerParts<Self, BackwardParamsSm90, Memory, QRing, DqSums, Tight> {
  using Parts = ConsumerParts<Self, BackwardParamsSm90, Memory, QRing, DqSums, Tight>;
  using Parts::p, Parts::args, Parts::shared, Parts::group;

  template <int Begin, int End>
  ATTNC_DEVICE void drop(typename Parts::Weights& weights, const ForwardParams& f, const KvPlace<Mod>& place,
                         Table table, Step step) const {
    drop_dead<Begin, End>(weights, f, args, place, table, step);
  }

  /// Sets weights that dropout drops to 0; rates stay.
  template <int Begin, int End>
  ATTNC_DEVICE void drop_weights(typename Parts::Weights& weights, const KvPlace<Mod>& place, Step step) const {
    const int q_first = q_offset<Mod>(args, place.head) + step.start + Parts::Scores::first_column();
    drop_transposed<Begin, End, kHasOffsets<Mod>>(weights.weights, place, q_first, place.kv_first);
  }

  ATTNC_DEVICE KvTilePlace own_place() const {
    int x[4];
    ptx::ld_shared(x, shared + Memory::template offset_of<OwnPlace>());
    return KvTilePlace(x);
  }
};

/// The storer: one thread per consumer warpgroup adds its dQ, by bulk copies.
template <class Memory> struct DqStorer {
  const BackwardParamsSm90& p;
  const ModArgs& args;
  unsigned shared;
  int group; ///< whose dQ

  ATTNC_DEVICE void run() const {
    unsigned parity = 0;
    int step = 0;
    while (true) {
      ptx::mbarrier_wait(Barriers<Memory, DqFull>{shared}[group], parity);
      parity ^= 1;
      int message[2], target[4]; // message: the tile of q, counted over all heads; whether it is the last one
      ptx::ld_shared(message, d_q_message<Memory>(shared, group));
      if constexpr (kSparesConsumers) ptx::ld_shared(target, target_at<Memory>(shared, step));
      int turn = 1;
      if constexpr (kTakesTurns) turn = ptx::ld_shared_int(turn_at<Memory>(shared, step));
      ++step;
      if (message[0] >= 0) {
        if constexpr (kSparesConsumers)
          message[0] = head_tile_of<Mod, kBlockM>(p.base.forward, args, target[2], target[3], target[0]);
        add(message[0], turn);
      }
      if (message[1]) break;
    }
  }

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
