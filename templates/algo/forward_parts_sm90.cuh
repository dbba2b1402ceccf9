// Shared by the roles of forward_sm90.cu: shared memory, and the producer, which fills the rings of Q, K and V.
#pragma once

#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/apply_mod.cuh"
#include "algo/further_columns.cuh"
#include "algo/kv_walk.cuh"
#include "algo/pages.cuh"
#include "algo/row_scales.cuh"
#include "algo/scaled.cuh"
#include "algo/tile_order.cuh"
#include "algo/warp_roles.cuh"
#include "params_sm90.cuh"
#include "ptx/cluster.cuh"
#include "ptx/tma.cuh"
#include "tile/request_tile.cuh"
#include "tile/ring.cuh"
#include "tile/transposed_v.cuh"

namespace attnc::sm90 {

constexpr int kConsumers = kWarps / 4; // warpgroups that compute
static_assert(kBlockM == 64 * kConsumers, "a warpgroup owns 64 rows");
static_assert(kBlockN % (kFp8 ? 64 : 16) == 0, "P V takes 32 bytes of columns at a time, and V is transposed by 64");
// Registers per thread, of the launch's 168 or 128. Look-ups of several pages take some, which heads up to 128 can
// spare; so do transposers, and look-ups of listed blocks for each sequence.
constexpr int kWidest = kHeadDimQk > kHeadDimV ? kHeadDimQk : kHeadDimV;
constexpr bool kLooksUp =
    kPageSize && (kWidest <= (kPageSize < kBlockN ? 128 : 64) || (kBlockSparse && kIsRagged<Mod>));
constexpr bool kGivesSome = kFp8 || (kConsumers == 2 && kLooksUp);
constexpr int kProducerRegisters = kGivesSome ? 56 : kConsumers == 2 ? 40 : 32;
constexpr int kConsumerRegisters = (kConsumers == 2 ? 232 : 160) - (kGivesSome ? 8 : 0);
static_assert(kConsumers == 2 || kConsumers == 3, "other register splits have not been chosen");

// ------------------------------------------------------------------------------------------------------ shared memory

using Input = typename Choose<kFp8, E4M3, Element>::Type; // of Q, K, V and weights
using QTile = SwizzledTile<Input, kBlockM, kHeadDimQk>;
using KTile = SwizzledTile<Input, kBlockN, kHeadDimQk>;
using LoadedVTile = SwizzledTile<Input, kBlockN, kHeadDimV>;
using TurnedVTile = SwizzledTile<Input, computed_columns(kHeadDimV), kBlockN>;
using VTile = typename Choose<kFp8, TurnedVTile, LoadedVTile>::Type;
using OutTile = SwizzledTile<Element, kBlockM, kHeadDimV>;

/// Whether O leaves through shared memory, in the slot of its Q. This needs two slots: the next Q uses the other one.
constexpr bool kOutInQSlot = kQStages == 2;
static_assert(kQStages <= 2, "a slot of Q is the last one or the other one");
constexpr int kQSlotBytes = kOutInQSlot && OutTile::kBytes > QTile::kBytes ? OutTile::kBytes : QTile::kBytes;

constexpr int kTransposers = 2; // warps that transpose V
struct QRing
    : RingParts<QRing, QTile, kQStages, 4, Arrivals{.full = 1, .empty = kOutInQSlot ? 1 : kWarps}, kQSlotBytes> {};
/// Whether the producer writes by column to shared memory: columns of the mod, or factors.
constexpr bool kFillsColumns = largest_column<Mod>() || kRowScales;
/// Whether the CTAs of a cluster walk the same steps, and each loads a part of K and V for all. Their tiles lie at one
/// place of query heads that share K and V, or without a mask are neighbours in one head.
constexpr bool kSharesSteps = kCluster > 1, kSharesHead = kClusterHeads == 1;
static_assert(!kSharesSteps || !(kBlockSparse || kPageSize || kIsRagged<Mod> || kFp8 || kHasColumns));
static_assert(!kSharesSteps || !kSharesHead || !Mod::kHasMaskMod, "tiles of a head have different steps");
constexpr int kReaders = kCluster * kWarps; // warps that release a slot of K or V before it is filled again
struct KRing
    : RingParts<KRing, KTile, kStages, kFp8 ? 4 : 2, Arrivals{.full = kFillsColumns ? 2 : 1, .empty = kReaders}> {};
struct VRing : RingParts<VRing, VTile, kStages, 0, Arrivals{.full = kFp8 ? kTransposers : 1, .empty = kReaders}> {};
struct LoadedVRing
    : RingParts<LoadedVRing, LoadedVTile, kFp8 ? kStages : 0, 2, Arrivals{.full = 1, .empty = kTransposers}> {};
using RequestedVRing = typename Choose<kFp8, LoadedVRing, VRing>::Type;
/// Whether another warp requests V. A thread takes some 80 cycles to issue a box, so those of small pages take one
/// thread as long as the products of a step. Steps of 64 columns belong to mods that take longer; with them, or if the
/// producer is a warp, ptxas would report C7514.
constexpr bool kOrdersV = kPageSize && kPageSize <= 16 && kBlockN >= 128 && !kFp8 && !kFillsColumns;
/// The steps whose V is wanted: a ring of messages.
struct VOrders : RingParts<VOrders, VTile, kOrdersV ? kStages : 0, 4, Arrivals{.full = 1, .empty = 1}, 0> {};
struct OutFull : BarrierParts<OutFull, kQStages, kWarps> {};
/// Whether consumers take turns at the tensor cores. Products of wider heads take longer than the softmax between them,
/// so the tensor cores have work in any order. So have the wider ones of e4m3: turns gain 3 % at 64, and nothing at
/// 128.
constexpr bool kPingPong = kWidest <= (kFp8 ? 64 : 128);
/// Of consumers: with turns, one arrives and the next one waits.
using SchedulerBarriers = NamedBarriers<1, kPingPong ? 256 : 128>;
/// Bytes of a Mod::Col, of that of any variant, if the producer computes them for all.
constexpr int kColumnBytes = largest_column<Mod>();
/// Mod::Col of each column of a step.
struct Columns : SharedPart<Columns, kColumnBytes * kStages * kBlockN> {};
struct RowScales : SharedPart<RowScales, kRowScales ? kStages * kRowScalesBytes<kBlockN> : 0> {};

using Memory =
    SharedMemory<QRing::Slots, KRing::Slots, VRing::Slots, LoadedVRing::Slots, QRing::Control, KRing::Control,
                 VRing::Control, VOrders::Control, LoadedVRing::Control, OutFull, Columns, RowScales>;
static_assert(Memory::kBytes == kSharedBytes, "the host asks for another size: src/plan");

template <class M> ATTNC_DEVICE M::Col* columns_of(unsigned shared, int slot) {
  const unsigned offset = Memory::offset_of<Columns>() + slot * kBlockN * unsigned(kColumnBytes);
  return (typename M::Col*)__cvta_shared_to_generic(shared + offset);
}
ATTNC_DEVICE unsigned row_scales_of(unsigned shared, int slot) {
  return shared + Memory::offset_of<RowScales>() + slot * kRowScalesBytes<kBlockN>;
}

using TileParams = WithColumnsIfAny<ScaledIf<ForwardParamsSm90, kFp8>>;
using Params = typename ParametersOf<TileParams, kPageSize != 0>::Type;

/// The producer's message about a tile of Q rows.
struct Work {
  int b, h, q_start, valid; // not valid: no more work
};

// ---------------------------------------------------------------------------------------------------------- producer

/// Whether the last tile of Q ends at the last row, and the first one may begin in front of the first. Later rows of
/// most bounded masks have longer walks, so rows that do not exist go where walks are short. TMA brings zeros for them,
/// or rows of the sequence before. Where steps divide the tile, it saves none, and edges of masks fall into more steps.
constexpr bool kAnchorsAtEnd = Mod::kHasBounds && kBlockM % kBlockN && !kBlockSparse && !kFp8 && !kDrops<Mod>;

/// Threads of the producer: one, or a warp if it fills columns. All walk; one issues TMA and arrives at barriers.
// NOTE: a whole warp where one thread suffices costs 4 % at head dim 128: ptxas then keeps less of the consumers'
// state in uniform registers.
constexpr int kProducers = kFillsColumns ? 32 : 1;

/// A step's position: its tile's coordinates and its first column.
// NOTE: the length is a base that may be empty, because an unused member changes ptxas's order of instructions.
struct At : PagedLength<kPageSize != 0> {
  int b, h, kv_head, origin, kv_start;
};

/// Issues the loads of a step's rows of K or V. One thread.
template <class Tile>
ATTNC_DEVICE void request_kv(const Params& p, const ModArgs& args, Tile tile, const TensorMap& map, unsigned barrier,
                             const At& at, int batch_step) {
  constexpr int kAtOnce = kRowScales ? 1 : (kGivesSome ? 8 : 4) / (kFillsColumns ? 2 : 1); // for want of registers
  if constexpr (kPageSize)
    request_pages<kPageSize, kAtOnce>(tile, map, barrier, at.kv_start, at.kv_head, pages_of(p, at.b), at.rows());
  else if constexpr (kSharesSteps)
    request_part<kCluster>(tile, map, barrier, at.kv_start, at.kv_head, at.b * batch_step, ptx::cluster_rank());
  else
    request_tile(tile, map, barrier, kv_row_of<Mod>(args, at.b, at.kv_start), at.kv_head, at.b * batch_step);
}

struct Producer : HeldRowScales<kRowScales, kBlockN> {
  const Params& p;
  const ModArgs& args;
  unsigned shared;
  const bool leads = threadIdx.x == 0;
  Ring<Memory, QRing> q = {shared};
  Ring<Memory, KRing> k = {shared};
  Ring<Memory, RequestedVRing> v = {shared};
  Ring<Memory, VOrders> v_orders = {shared};

  ATTNC_DEVICE void request_q(Work work) {
    q.acquire();
    if (leads) {
      q.write_message({work.b, work.h, work.q_start, work.valid});
      if (work.valid) {
        ptx::mbarrier_arrive_expect_tx(q.full(), QTile::kBytes);
        request_tile(own_columns(q.tile()), p.q, q.full(), q_row_of<Mod>(args, work.b, work.q_start), work.h,
                     work.b * p.q_batch_step);
        request_q_columns(p, q.tile(), q.full(), q_row_of<Mod>(args, work.b, work.q_start), work.h, work.b);
      } else {
        ptx::mbarrier_arrive(q.full());
      }
    }
    q.advance();
  }

  template <class KRing> ATTNC_DEVICE static void tell(const KRing& k, Step step, StepScales scales) {
    if constexpr (kFp8)
      k.write_message({step.start, step.flags, __float_as_int(scales.k), __float_as_int(scales.v)});
    else
      k.write_message({step.start, step.flags});
  }

  /// A message to transposers: rows of V that live, and whether there is a V.
  struct LoadedV {
    int live, valid;
  };
  template <class VRing> ATTNC_DEVICE static void tell(const VRing& v, LoadedV message) {
    v.write_message({message.live, message.valid});
  }

  ATTNC_DEVICE void request_k(const At& at, int flags, StepScales scales) {
    k.acquire();
    if (leads) {
      if constexpr (!kRowScales) tell(k, {at.kv_start, flags}, scales);
      ptx::mbarrier_arrive_expect_tx(k.full(), KTile::kBytes);
      request_kv(p, args, own_columns(k.tile()), p.k, k.full(), at, p.k_batch_step);
      request_k_columns(p, k.tile(), k.full(), kv_row_of<Mod>(args, at.b, at.kv_start), at.h, at.b);
    }
  }

  ATTNC_DEVICE void request_v(const At& at) {
    if constexpr (kOrdersV) {
      order_v({at.kv_start, at.b, at.kv_head, at.rows()});
    } else {
      v.acquire();
      if (leads) {
        if constexpr (kFp8)
          tell(v, {kHasLengths<Mod> ? kv_length_of<Mod>(p.base, args, at.b, at.h) - at.kv_start : kBlockN, 1});
        ptx::mbarrier_arrive_expect_tx(v.full(), LoadedVTile::kBytes);
        request_kv(p, args, v.tile(), p.v, v.full(), at, p.v_batch_step);
      }
      v.advance();
    }
  }

  ATTNC_DEVICE void order_v(const int (&message)[4]) {
    v_orders.acquire();
    if (leads) {
      v_orders.write_message(message);
      ptx::mbarrier_arrive(v_orders.full());
    }
    v_orders.advance();
  }

  /// Tells transposers, or the V requester, that there is no more work.
  ATTNC_DEVICE void end_v() {
    if constexpr (kOrdersV) order_v({-1, 0, 0, 0});
    if constexpr (kFp8) {
      v.acquire();
      if (leads) {
        tell(v, {0, 0});
        ptx::mbarrier_arrive(v.full());
      }
    }
  }

  /// Computes columns that the mod loads. M: the mod, or one of its variants.
  template <class M> ATTNC_DEVICE void compute_columns(const At& at, int flags) {
    if constexpr (M::kSharesColumns) {
      if (M::Exponents::kCallsScore || flags & kStepMasked) {
        const typename M::Head head = M::head(args, at.b, at.h); // SEAM(head)
        typename M::Col* columns = columns_of<M>(shared, k.slot);
        const int origin = kChooses<Mod> ? Place<1, M>::origin_of(at.origin) : at.origin;
        for (int i = threadIdx.x; i < kBlockN; i += 32) {
          const int kv_idx = min(at.kv_start + i, max(p.base.kv_len, 1) - 1);
          columns[i] = M::col(args, head, at.b, at.h, kv_idx, float(kv_idx - origin), 0.f); // SEAM(col)
        }
        __syncwarp();
      }
    }
  }

  /// Computes columns that the mod loads, and writes factors, for the K requested last: its barrier's second arrival.
  ATTNC_DEVICE void fill_columns(const At& at, int flags) {
    if constexpr (kChooses<Mod> && kColumnBytes)
      with_variant<Mod>(variant_of<Mod>(args, at.b, at.h), [&](auto m) { compute_columns<decltype(m)>(at, flags); });
    else if constexpr (kColumnBytes)
      compute_columns<Mod>(at, flags);
    if constexpr (kRowScales) {
      const float unit = this->store_scales(row_scales_of(shared, k.slot), flags & kStepFirst);
      if (leads) tell(k, {at.kv_start, flags}, {1.f, unit});
      __syncwarp();
    }
    if constexpr (kFillsColumns)
      if (leads) ptx::mbarrier_arrive(k.full());
  }

  ATTNC_DEVICE void run() {
    typename Choose<kSharesSteps, ClusterScheduler<kCluster>, TileScheduler>::Type scheduler{p.order};
    At v_next = {{}, 0, 0, 0, 0, -1}; // the step whose V is requested next, if kv_start >= 0
    while (scheduler.valid()) {
      TilePlace tile = tile_at(p.order, scheduler.index);
      scheduler.advance<kProducers>();
      if constexpr (kSharesSteps) {
        int& shared_by = kSharesHead ? tile.q_tile : tile.head;
        shared_by = kCluster * shared_by + ptx::cluster_rank();
      }
      int q_start = tile.q_tile * kBlockM, q_length = p.base.q_len;
      At at;
      at.b = tile.head / p.base.q_heads;
      at.h = tile.head % p.base.q_heads;
      if constexpr (kIsRagged<Mod>) {
        const RowTile rows = q_tile_in_slot<Mod, kBlockM>(args, tile.q_tile, p.base.batch);
        q_start = rows.start, q_length = q_length_of<Mod>(p.base, args, rows.b);
        if (!has_rows<Mod>(q_start, q_length)) continue;
        at.b = rows.b, at.h = tile.head;
      }
      if constexpr (kAnchorsAtEnd) q_start -= kBlockM - 1 - unsigned(q_length - 1) % kBlockM;
      at.kv_head = at.h / p.base.group;
      const int position = q_offset_of<Mod>(args, at.b, at.h) + q_start;
      at.origin = kChooses<Mod> ? position : Place<1>::origin_of(position);
      const auto walk = walk_kv<Mod, kBlockN, kBlockSparse>(
          p.base, args, at.b, at.h, kAnchorsAtEnd ? max(q_start, 0) : q_start, min(q_start + kBlockM, q_length));
      at.set_length(walk.length);
      // V is one step behind K. Q comes after both: its slot is released last, once the O of an earlier tile has left
      // it.
      Step step = walk.at(0);
      int i = 0;
      const auto scales_of = [&](Step step) { return scales_of_step(p, at.b, at.kv_head, step.start, p.base.kv_len); };
      StepScales scales = scales_of(step); // one step ahead, so that nothing waits for them
      if constexpr (kRowScales) this->template load_scales<Mod>(p, args, at, step.start, walk.length);
      while (true) {
        at.kv_start = step.start;
        request_k(at, step.flags, scales);
        if (v_next.kv_start >= 0) request_v(v_next);
        if (step.flags & kStepFirst) request_q({at.b, at.h, q_start, 1});
        fill_columns(at, step.flags);
        k.advance();
        v_next = at;
        if (step.flags & kStepLast) break;
        step = walk.at(++i);
        scales = scales_of(step);
        if constexpr (kRowScales) this->template load_scales<Mod>(p, args, at, step.start, walk.length);
      }
    }
    if (!kIsRagged<Mod> || v_next.kv_start >= 0) request_v(v_next); // a CTA may have had unused slots only
    end_v();
    request_q({});
    if (leads) scheduler.finish();
  }
};

/// With kOrdersV: one thread, which requests V in the steps that the producer names.
struct VRequester {
  const Params& p;
  const ModArgs& args;
  unsigned shared;
  Ring<Memory, RequestedVRing> v = {shared};
  Ring<Memory, VOrders> orders = {shared};

  ATTNC_DEVICE void run() {
    while (true) {
      orders.wait();
      int order[4];
      orders.read_message(order);
      if (order[0] < 0) break;
      ptx::mbarrier_arrive(orders.empty());
      orders.advance();
      At at = {{}, order[1], 0, order[2], 0, order[0]};
      at.set_length(order[3]);
      v.acquire();
      ptx::mbarrier_arrive_expect_tx(v.full(), LoadedVTile::kBytes);
      request_kv(p, args, v.tile(), p.v, v.full(), at, p.v_batch_step);
      v.advance();
    }
  }
};

} // namespace attnc::sm90
