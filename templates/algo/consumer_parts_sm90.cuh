// Shared by the consumers of forward_sm90.cu: their state, their turns, and how O leaves.
#pragma once

#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/forward_parts_sm90.cuh"
#include "algo/softmax.cuh"
#include "tile/gemm_wgmma.cuh"
#include "tile/store_wgmma.cuh"

namespace attnc::sm90 {

/// A consumer: a warpgroup, which owns 64 rows.
struct ConsumerParts {
  const TileParams& p;
  const ModArgs& args;
  unsigned shared;
  int group; // which consumer warpgroup, uniform over the warp

  Ring<Memory, QRing> q = {shared};
  Ring<Memory, KRing> k = {shared};
  Ring<Memory, VRing> v = {shared};
  Barriers<Memory, OutFull> out_full = {shared};

  using Scores = Fragment<1, kBlockN>;
  using Out = Fragment<1, computed_columns(kHeadDimV)>;
  using Range = Choose<kFp8, WeightsOfE4M3, WeightsFromOne>::Type;
  // NOTE: E4M3 and wide heads leave no registers.
  using Kept = Choose<kFp8 || (kHeadDimV > 128), volatile float, float>::Type;
  using RowSoftmax = Softmax<2, typename Choose<kRowMax, WithMaxima<2, Range, Kept>, Range>::Type>;

  /// Whether references are maxima in a step.
  // NOTE: row_max is null without kRowMax. The test is there for ptxas, whose loop was timed with it.
  ATTNC_DEVICE bool is_exact(Step step) const { return step.flags & kStepFew || (!kRowMax && p.base.row_max); }

  ATTNC_DEVICE Work await_work() {
    q.wait();
    int x[4];
    q.read_message(x);
    return {x[0], x[1], x[2], x[3]};
  }
  template <class KRing> ATTNC_DEVICE static Step read_step(const KRing& k, StepScales& scales) {
    int x[kFp8 ? 4 : 2];
    k.read_message(x);
    if constexpr (kFp8) scales = {__int_as_float(x[2]), __int_as_float(x[3])};
    return {x[0], x[1]};
  }

  /// Releases the current slot of K or V: to the producers of all CTAs that fill it.
  template <class KvRing> ATTNC_DEVICE static void release(const KvRing& ring, bool really = true) {
    if constexpr (kSharesSteps) {
      __syncwarp();
      const int rank = threadIdx.x % 32;
      ptx::mbarrier_arrive_at(ring.empty(), rank, really && rank < kCluster);
    } else {
      ring.release(really);
    }
  }

  /// Returns the columns of the step whose K is current. M: the mod, or one of its variants.
  template <class M> ATTNC_DEVICE auto columns() const {
    if constexpr (M::kSharesColumns)
      return SharedColumns<M>{columns_of<M>(shared, k.slot)};
    else
      return OwnColumns{};
  }

  /// Ping-pong scheduling: consumers take turns at issuing products, so that the softmax of one overlaps the products
  /// of another. Warpgroup 0 has the first turn. Without turns, a consumer waits for its own warps where they share
  /// what they write.
  ATTNC_DEVICE void scheduler_barrier_sync() {
    if (kPingPong || kHasLengths<Mod> || kOutInQSlot) SchedulerBarriers::sync(group);
  }
  ATTNC_DEVICE void scheduler_barrier_arrive() {
    if (kPingPong) SchedulerBarriers::arrive(group + 1 == kConsumers ? 0 : 1 + group);
  }

  /// Epilogue: hands a tile's O to the storer, in the slot of its Q, or stores it. The scheduler barrier passed since
  /// guarantees that the warpgroup's products with that Q are complete. Others may still read theirs: in any slab, rows
  /// of O lie where the warpgroup's own rows of Q lay. `unit`: a factor of O.
  template <class M> ATTNC_DEVICE void store(const Out& o, RowSoftmax& softmax, const Place<1, M>& place, float unit) {
    const ForwardParams& base = params_of<Mod>(p.base, args, place.b);
    const float v_scale = unit * scale_of_v<kRowScales>(p, place.b, place.h / base.group) * place.factor();
    const float normalise[2] = {finish_row(softmax, 0, base, args, place) * v_scale,
                                finish_row(softmax, 1, base, args, place) * v_scale};
    if constexpr (kOutInQSlot) {
      const int slot = q.slot ^ 1; // of two; `q` has advanced already
      const OutTile tile = OutTile{q.tile_of(slot).base}.from_row(64 * group);
      if constexpr (kFp8)
        wgmma::write_v_columns(tile, o, normalise);
      else
        wgmma::write_tile(tile, o, normalise);
      ptx::fence_proxy_async();
      arrive_by_warp(out_full[slot]);
    } else {
      Element* out = (Element*)base.out + place.b * base.out_stride.batch + place.h * base.out_stride.head;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int q_idx = place.q_first + 8 * r;
        Element* row = out + q_idx * base.out_stride.row;
        if constexpr (kFp8)
          wgmma::store_v_columns<kHeadDimV>(row, o, r, normalise[r], unsigned(q_idx) < unsigned(base.q_len));
        else
          wgmma::store_row<kHeadDimV>(row, o, r, normalise[r], unsigned(q_idx) < unsigned(base.q_len));
      }
    }
    store_row_outputs(base, args, place, softmax);
  }
};

} // namespace attnc::sm90
