// Forward attention over tokens on grids with wgmma and TMA, for sm_90a: tiles are boxes in space.
//
//   S = scale Q K^T,  P = softmax(mod(S)),  O = P V,  lse = log sum exp mod(S)
//
// Like forward_sm90.cu, but rows of a tile are the queries of a box, and columns of a step are the keys of another,
// which TMA reads in place: nothing is permuted. The consumers' boxes of queries lie side by side along one axis,
// kSplitAxis, and form the CTA's box. The planner asks the mod what each query sees. The producer walks the boxes that
// cover what some query of the CTA sees, from the first key on, kSplitAxis slowest. A consumer skips steps that none of
// its queries sees. So consumers are at different steps, and do not take turns at the tensor cores.
//
// With kBlockSparse, lists name the live boxes of keys, of a lattice, and which of them need mask_mod
// (algo/listed_grid_tiles.cuh). The producer walks these, and all consumers work on all of them.
//
// If a mod has off-grid tokens (text, registers; algo/beside_grid.cuh), a tile is a box, or 64 queries of a run per
// consumer. A step is a box of keys, or as many keys of a run; runs come first. For pairs that are not both on their
// grids, the mod has constants that say whether they live, or mask_mod is called for each.
//
//   role          threads              registers   what
//   producer      one thread           40          walks boxes of keys; issues TMA loads of Q, K, V
//   storer        one thread           40          issues TMA stores of finished boxes of O
//   planner       a warp               40          tile scheduler; asks the mod what a tile's queries see
//   consumer i    a warpgroup, 64 rows 232         products, mod, softmax
//
//   shared memory   bytes                                 lifetime
//   QRing           2 tiles of kBlockM x kHeadDimQk       a slot: the queries of a CTA's box; then their rows of O
//                   (or x kHeadDimV, if O takes more room)
//   KRing           kStages tiles of kBlockN x kHeadDimQk a slot: until S of its step is complete
//   VRing           kStages tiles of kBlockN x kHeadDimV  a slot: until P V of its step is complete
//   Plans           2 TilePlan                            until the producer has read it
//   control words   messages and barriers of the rings, OutFull, plan barriers
//
//   barrier           completed by                                         waited for by
//   plan_full         planner: a plan is written                           producer
//   plan_empty        producer: has read it                                planner
//   q.full            producer: Q requested, message written; its bytes    consumers, storer
//   q.empty           storer: TMA has read O                               producer
//   k.full            producer: K requested, message written; its bytes    consumers
//   k.empty           consumers: S complete, or step skipped               producer
//   v.full, v.empty   producer: V requested, its bytes; consumers: O       consumers, producer
//   out_full          consumer i: its rows of O written to the slot of Q   storer
//   QRead             consumer i: its warps have read their Q              itself
//
// Messages: with Q b * heads + h, or -1 for no more work, and the first query; with K the first key and flags.
//
// A consumer skips steps while O += P V of its last step is not started yet. It does so for at most kStages - 1 steps.
// Otherwise the producer, which requests V one step behind K, would wait for a slot that the consumer holds.
//
// The host provides: tensor maps, the tile order and its counters (params_grid_sm90.cuh); grid min(tiles, SMs), 128 +
// 32 kWarps threads, kSharedBytes of dynamic shared memory. Unless Mod::kHasBeside, all tokens lie on the grids.
//
// Config:
//   kWarps = 8, kBlockM = 128, kQStages = 2, kStages
//   kQueryBox       a consumer's box of queries, 64 tokens
//   kKeyBox         a step's box of keys, kBlockN tokens
//   kSplitAxis      the axis along which the consumers' boxes lie side by side
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/grid_maps.cuh"
#include "algo/grid_tiles.cuh"
#include "algo/listed_grid_tiles.cuh"
#include "algo/softmax.cuh"
#include "algo/tile_order.cuh"
#include "algo/warp_roles.cuh"
#include "params_grid_sm90.cuh"
#include "ptx/tma.cuh"
#include "tile/gemm_wgmma.cuh"
#include "tile/ring.cuh"
#include "tile/store_wgmma.cuh"

namespace attnc::grid {

using Params = Choose<Mod::kHasBeside, ForwardGridBesideParamsSm90, ForwardGridParamsSm90>::Type;

using QueryShape = BoxShape<kQueryBox[0], kQueryBox[1], kQueryBox[2]>; // of a consumer
using KeyShape = BoxShape<kKeyBox[0], kKeyBox[1], kKeyBox[2]>;
constexpr int kConsumers = kWarps / 4; // warpgroups that compute
static_assert(kBlockM == 64 * kConsumers && QueryShape::kTokens == 64, "a warpgroup owns a box of 64 queries");
static_assert(kBlockN == KeyShape::kTokens && kBlockN % 16 == 0, "P V takes 16 columns at a time");
constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
static_assert(kConsumers == 2, "another register split has not been chosen");

// ------------------------------------------------------------------------------------------------------ shared memory

using QTile = SwizzledTile<Element, kBlockM, kHeadDimQk>;
using KTile = SwizzledTile<Element, kBlockN, kHeadDimQk>;
using VTile = SwizzledTile<Element, kBlockN, kHeadDimV>;
using OutTile = SwizzledTile<Element, kBlockM, kHeadDimV>;

static_assert(kQStages == 2, "O leaves through the slot of its Q, while the next Q comes into the other");
constexpr int kQSlotBytes = OutTile::kBytes > QTile::kBytes ? OutTile::kBytes : QTile::kBytes;
struct QRing : RingParts<QRing, QTile, kQStages, 4, Arrivals{.full = 1, .empty = 1}, kQSlotBytes> {};
struct KRing : RingParts<KRing, KTile, kStages, 4, Arrivals{.full = 1, .empty = kWarps}> {};
struct VRing : RingParts<VRing, VTile, kStages, 0, Arrivals{.full = 1, .empty = kWarps}> {};
struct OutFull : BarrierParts<OutFull, kQStages * kConsumers, 4> {};
using QRead = NamedBarriers<1, 128>; // by consumer: all of its warps have read their Q

using SeenTiles = GridTiles<QueryShape, KeyShape, kSplitAxis, kConsumers>;
using ListedTiles = ListedGridTiles<QueryShape, KeyShape, kSplitAxis, kConsumers>;
using Tiles = Choose<kBlockSparse, ListedTiles, SeenTiles>::Type;
using TilePlan = Tiles::Plan;
constexpr int kPlans = 2;
struct Plans : SharedPart<Plans, int(sizeof(TilePlan)) * kPlans> {};
struct PlanFull : BarrierParts<PlanFull, kPlans, 1> {};
struct PlanEmpty : BarrierParts<PlanEmpty, kPlans, 1> {};

using Memory = SharedMemory<QRing::Slots, KRing::Slots, VRing::Slots, QRing::Control, KRing::Control, VRing::Control,
                            OutFull, PlanFull, PlanEmpty, Plans>;
static_assert(Memory::kBytes == kSharedBytes, "the host asks for another size: src/plan");

/// A tile of queries, as in the producer's message.
struct Work {
  int head;      // b * q_heads + h; -1: no more work
  int origin[3]; // of the CTA's box, or of a run's queries
};

/// A step, as in the producer's message.
struct BoxStep {
  int origin[3]; // of the box of keys, or of a run's keys
  int flags;

  static constexpr int kTileEnd = 1; // the CTA's last step of the tile
  static constexpr int kFew = 2;     // the tile's only step: softmax.cuh
  // For consumer i, shifted by 3 i:
  static constexpr int kMine = 4;  // it works on the step
  static constexpr int kFirst = 8; // its first step of the tile
  static constexpr int kLast = 16; // its last one

  static constexpr int kFull = 4 << 3 * kConsumers; // lists: mask_mod is true for all of it
};

/// Maps of runs; none without Mod::kHasBeside.
struct RunMaps {
  const TensorMap *q, *k, *v, *out;
};
ATTNC_DEVICE RunMaps run_maps(const ForwardGridParamsSm90&) { return {}; }
ATTNC_DEVICE RunMaps run_maps(const ForwardGridBesideParamsSm90& p) { return {p.q_run, p.k_run, p.v_run, p.out_run}; }

// ----------------------------------------------------------------------------------------------------------- planner

/// Position of the planner or the producer in the ring of plans.
struct PlanPlace {
  unsigned shared;
  int slot = 0;
  unsigned parity = 0;

  ATTNC_DEVICE TilePlan& plan() const {
    return ((TilePlan*)__cvta_shared_to_generic(shared + Memory::offset_of<Plans>()))[slot];
  }
  ATTNC_DEVICE unsigned full() const { return Barriers<Memory, PlanFull>{shared}[slot]; }
  ATTNC_DEVICE unsigned empty() const { return Barriers<Memory, PlanEmpty>{shared}[slot]; }
  ATTNC_DEVICE void advance() {
    parity ^= slot == kPlans - 1;
    slot = slot == kPlans - 1 ? 0 : slot + 1;
  }
};

/// One warp.
struct Planner {
  const Params& p;
  const ModArgs& args;
  unsigned shared;
  PlanPlace place = {shared};

  ATTNC_DEVICE void commit(const TilePlan& plan) {
    ptx::mbarrier_wait(place.empty(), place.parity ^ 1);
    if (threadIdx.x % 32 == 0) {
      place.plan() = plan;
      ptx::mbarrier_arrive(place.full());
    }
    __syncwarp();
    place.advance();
  }

  ATTNC_DEVICE void run() {
    TileScheduler scheduler{p.order};
    while (scheduler.valid()) {
      const TilePlace tile = tile_at(p.order, scheduler.index);
      scheduler.advance<32>();
      commit(Tiles::plan(p, args, tile));
    }
    TilePlan none;
    none.head = -1;
    commit(none);
    if (threadIdx.x % 32 == 0) scheduler.finish();
  }
};

// ---------------------------------------------------------------------------------------------------------- producer

/// One thread.
struct Producer {
  const Params& p;
  unsigned shared;
  PlanPlace place = {shared};
  Ring<Memory, QRing> q = {shared};
  Ring<Memory, KRing> k = {shared};
  Ring<Memory, VRing> v = {shared};

  /// The keys whose V is requested next.
  struct At {
    int head = -1, x[3];
  };

  template <class Plan> ATTNC_DEVICE void request_q(const Plan& plan, int head) {
    q.acquire();
    q.write_message({plan.head, plan.origin[0], plan.origin[1], plan.origin[2]});
    ptx::mbarrier_arrive_expect_tx(q.full(), QTile::kBytes);
#pragma unroll
    for (int i = 0; i < kConsumers; ++i) {
      int x[3] = {plan.origin[0], plan.origin[1], plan.origin[2]};
      Tiles::move_to(x, i);
      request_tile(q.tile().from_row(64 * i), map_of(p.q, run_maps(p).q, x), q.full(), x, head);
    }
    q.advance();
  }

  ATTNC_DEVICE void request_k(const int (&x)[3], int head, int flags) {
    k.acquire();
    k.write_message({x[0], x[1], x[2], flags});
    ptx::mbarrier_arrive_expect_tx(k.full(), KTile::kBytes);
    request_tile(k.tile(), map_of(p.k, run_maps(p).k, x), k.full(), x, head);
    k.advance();
  }

  ATTNC_DEVICE void request_v(const At& at) {
    if (at.head < 0) return;
    v.acquire();
    ptx::mbarrier_arrive_expect_tx(v.full(), VTile::kBytes);
    request_tile(v.tile(), map_of(p.v, run_maps(p).v, at.x), v.full(), at.x, at.head);
    v.advance();
  }

  ATTNC_DEVICE void release_plan() {
    ptx::mbarrier_arrive(place.empty());
    place.advance();
  }

  /// Requests a step that all consumers work on, over keys from x on; also the tile's Q if the step is its first.
  template <class Plan>
  ATTNC_DEVICE void request_for_all(const Plan& plan, const int (&x)[3], bool is_first, bool is_last, int flags,
                                    At& v_next) {
    const int b = plan.head / p.base.q_heads, h = plan.head - b * p.base.q_heads, kv_head = h / p.base.group;
    const int mine = BoxStep::kMine | (is_first ? BoxStep::kFirst : 0) | (is_last ? BoxStep::kLast : 0);
    flags |= is_last ? BoxStep::kTileEnd | (is_first ? BoxStep::kFew : 0) : 0;
#pragma unroll
    for (int c = 0; c < kConsumers; ++c) flags |= mine << 3 * c;
    request_k(x, kv_head + b * p.k_batch_step, flags);
    request_v(v_next);
    if (is_first) request_q(plan, h + b * p.q_batch_step);
    v_next = {kv_head + b * p.v_batch_step, {x[0], x[1], x[2]}};
  }

  /// Requests a tile's steps over off-grid keys, and its Q if there are any. Returns how many.
  ATTNC_DEVICE int request_beside(const SeenTiles::Plan& plan, At& v_next) {
    const int steps = Tiles::steps_beside(p, plan.origin);
    const bool are_all = plan.count[0] == 0;
    for (int step = 0; step < steps; ++step) {
      int x[3];
      Tiles::step_beside(p, step, x);
      request_for_all(plan, x, step == 0, are_all && step + 1 == steps, 0, v_next);
    }
    return steps;
  }

  /// Requests a tile's steps over the boxes of keys that its queries see.
  ATTNC_DEVICE void request_keys(const SeenTiles::Plan& plan, At& v_next) {
    constexpr int kSlow = kSplitAxis == 0 ? 1 : 0, kFast = kSplitAxis == 2 ? 1 : 2; // the other axes
    const int b = plan.head / p.base.q_heads, h = plan.head - b * p.base.q_heads, kv_head = h / p.base.group;
    int beside = 0;
    if constexpr (Mod::kHasBeside) beside = request_beside(plan, v_next);
    const int steps = plan.count[0] * plan.count[1] * plan.count[2];
    int i[3] = {0, 0, 0}; // the box, along each axis
    for (int step = 0; step < steps; ++step) {
      const int x[3] = {plan.begin[0] + i[0] * KeyShape::extent(0), plan.begin[1] + i[1] * KeyShape::extent(1),
                        plan.begin[2] + i[2] * KeyShape::extent(2)};
      const bool enters = i[kSlow] == 0 && i[kFast] == 0; // a place along kSplitAxis
      if (++i[kFast] == plan.count[kFast]) i[kFast] = 0, ++i[kSlow];
      const bool leaves = i[kSlow] == plan.count[kSlow];
      int flags = (step + 1 == steps ? BoxStep::kTileEnd : 0) | (steps == 1 && beside == 0 ? BoxStep::kFew : 0);
#pragma unroll
      for (int c = 0; c < kConsumers; ++c) {
        if (i[kSplitAxis] < plan.first[c] || i[kSplitAxis] > plan.last[c]) continue;
        flags |= BoxStep::kMine << 3 * c;
        if (i[kSplitAxis] == plan.first[c] && enters && beside == 0) flags |= BoxStep::kFirst << 3 * c;
        if (i[kSplitAxis] == plan.last[c] && leaves) flags |= BoxStep::kLast << 3 * c;
      }
      if (leaves) i[kSlow] = 0, ++i[kSplitAxis];
      request_k(x, kv_head + b * p.k_batch_step, flags);
      request_v(v_next);
      if (step == 0 && beside == 0) request_q(plan, h + b * p.q_batch_step);
      v_next = {kv_head + b * p.v_batch_step, {x[0], x[1], x[2]}};
    }
  }

  /// Requests a tile's steps over the boxes of its list.
  ATTNC_DEVICE void request_keys(const ListedTiles::Plan& plan, At& v_next) {
    const int b = plan.head / p.base.q_heads;
    const ListedBoxes<KeyShape> boxes(p, b, plan.head - b * p.base.q_heads, plan.tile);
    const int steps = boxes.steps();
    for (int step = 0; step < steps; ++step) {
      int x[3];
      boxes.origin_of(p, step, x);
      request_for_all(plan, x, step == 0, step + 1 == steps, boxes.is_full(step) ? BoxStep::kFull : 0, v_next);
    }
  }

  ATTNC_DEVICE void run() {
    At v_next;
    while (true) {
      ptx::mbarrier_wait(place.full(), place.parity);
      // NOTE: not copied if registers do not suffice for all of it.
      const typename Choose<Mod::kHasBeside, const TilePlan&, TilePlan>::Type plan = place.plan();
      if constexpr (!Mod::kHasBeside) release_plan();
      if (plan.head < 0) break;
      request_keys(plan, v_next);
      if constexpr (Mod::kHasBeside) release_plan();
    }
    request_v(v_next);
    q.acquire();
    q.write_message({-1, 0, 0, 0});
    ptx::mbarrier_arrive(q.full());
  }
};

// ------------------------------------------------------------------------------------------------------------- storer

/// One thread: issues the TMA stores of the O that consumers leave in a slot of Q, and then releases the slot.
struct Storer {
  const Params& p;
  unsigned shared;
  Ring<Memory, QRing> q = {shared};
  Barriers<Memory, OutFull> out_full = {shared};

  ATTNC_DEVICE void run() {
    while (true) {
      q.wait();
      int work[4];
      q.read_message(work);
      if (work[0] < 0) break;
      const int b = work[0] / p.base.q_heads, head = work[0] % p.base.q_heads + b * p.out_batch_step;
#pragma unroll
      for (int i = 0; i < kConsumers; ++i) {
        ptx::mbarrier_wait(out_full[q.slot * kConsumers + i], q.parity);
        int x[3] = {work[1], work[2], work[3]};
        Tiles::move_to(x, i);
        const OutTile out = OutTile{q.tile().base}.from_row(64 * i);
        const TensorMap& map = map_of(p.out, run_maps(p).out, x);
#pragma unroll
        for (int slab = 0; slab < OutTile::kSlabs; ++slab)
          ptx::tma_store_5d(map, out.slab(slab), slab * 64, x[2], x[1], on_map(x, 0), head);
        ptx::bulk_commit_group();
      }
      ptx::bulk_wait_read();
      ptx::mbarrier_arrive(q.empty());
      q.advance();
    }
  }
};

// ---------------------------------------------------------------------------------------------------------- consumer

struct Consumer {
  const Params& p;
  const ModArgs& args;
  unsigned shared;
  int group; // which consumer warpgroup, uniform over the warp

  Ring<Memory, QRing> q = {shared};
  Ring<Memory, KRing> k = {shared};
  Ring<Memory, VRing> v = {shared};
  Barriers<Memory, OutFull> out_full = {shared};

  using Scores = Fragment<1, kBlockN>;
  using Weights = PackedFragment<Element, 1, kBlockN>;
  using Out = Fragment<1, computed_columns(kHeadDimV)>;

  Scores s;
  Weights weights;
  Out o;
  Softmax<2> softmax;
  GridPlace place;
  LiveKeys<KeyShape> live; ///< of the tile
  bool works = false;      ///< there is a tile whose last O += P V is not started yet
  bool is_first = false;   ///< that step is the tile's first
  int skipped = 0;         ///< steps skipped since, whose V is still held

  ATTNC_DEVICE static Work await_work(const Ring<Memory, QRing>& q) {
    q.wait();
    int x[4];
    q.read_message(x);
    return {x[0], {x[1], x[2], x[3]}};
  }
  ATTNC_DEVICE BoxStep read_step() {
    int x[4];
    k.read_message(x);
    return {{x[0], x[1], x[2]}, x[3]};
  }
  ATTNC_DEVICE bool is(BoxStep step, int flag) const { return step.flags >> 3 * group & flag; }

  ATTNC_DEVICE void release_v() {
    v.release();
    v.advance();
  }
  ATTNC_DEVICE void release_skipped() {
    for (; skipped > 0; --skipped) {
      v.wait();
      release_v();
    }
  }

  /// Epilogue: hands a box of O to the storer, in the slot of its Q, at which the ring still stands.
  ATTNC_DEVICE void store() {
    float normalise[2] = {softmax.finish(0), softmax.finish(1)};
    if constexpr (kHasSink<Mod>)
#pragma unroll
      for (int r = 0; r < 2; ++r) normalise[r] = with_sink(softmax, r, args, place, place.q[r]).normalise;
    QRead::sync(group); // products with this Q are complete in all warps
    wgmma::write_tile(OutTile{q.tile().base}.from_row(64 * group), o, normalise);
    ptx::fence_proxy_async();
    arrive_by_warp(out_full[q.slot * kConsumers + group]);
    const ForwardParams& base = p.base;
    if (!base.lse && !base.row_max) return;
    const long long first = ((long long)place.b * base.q_heads + place.h) * base.q_len;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (threadIdx.x % 4 != 0 || !place.exists[r]) continue;
      if (base.lse) base.lse[first + place.q[r].index] = lse_of(softmax, r, args, place, place.q[r]);
      if (base.row_max) base.row_max[first + place.q[r].index] = softmax.max(r, place.form(r), 0.f);
    }
  }

  /// Finishes the current tile if no step follows to do it.
  ATTNC_DEVICE void finish() {
    wgmma::touch(o);
    ptx::wgmma_fence();
    wgmma::start_gemm(o, weights, v.tile(), !is_first);
    ptx::wgmma_commit_group();
    wgmma::wait<0>(o);
    release_v();
    release_skipped();
    store();
    works = false;
  }

  /// Skips a step.
  ATTNC_DEVICE void skip() {
    if (works && skipped == kStages - 1) finish();
    k.wait();
    __syncwarp();
    k.release();
    k.advance();
    if (works) {
      ++skipped;
    } else {
      v.wait();
      release_v();
    }
  }

  ATTNC_DEVICE void run() {
    const int row_of_box = threadIdx.x / 32 % 4 * 16 + Scores::row(0);
    BoxStep step = {{}, BoxStep::kTileEnd | (BoxStep::kFirst | BoxStep::kLast) << 3 * group}; // the last, then this
    bool has_tile = false;
#pragma unroll 1
    while (true) {
      // Start S of this step and O += P V of the last one. If either does not exist, its result is garbage and unused.
      is_first = is(step, BoxStep::kFirst);
      const bool begins = is(step, BoxStep::kLast); // this step begins a tile
      Work work = {-1, {}};
      unsigned q_tile = q.tile().base;
      if (begins) [[unlikely]] {
        // Skips the rest of the tile; then waits for the next one, and skips to its first step that is this consumer's.
        for (bool ended = step.flags & BoxStep::kTileEnd; !ended; skip()) {
          k.wait();
          ended = read_step().flags & BoxStep::kTileEnd;
        }
        Ring<Memory, QRing> next = q;
        next.advance(has_tile);
        work = await_work(next);
        q_tile = next.tile().base;
        if (work.head >= 0)
          for (k.wait(); !is(read_step(), BoxStep::kMine); k.wait()) skip();
      }
      const bool ends = begins && works; // the last step ended a tile, which is not stored yet
      const bool has_v = works;
      wgmma::touch(s);
      wgmma::touch(o);
      ptx::wgmma_fence();
      wgmma::start_gemm(s, QTile{q_tile}.from_row(64 * group), transposed(k.tile()), 0); // S = Q K^T
      ptx::wgmma_commit_group();
      wgmma::start_gemm(o, weights, v.tile(), !is_first); // O += P V
      ptx::wgmma_commit_group();
      step = read_step();

      if (begins) [[unlikely]] {
        GridPlace next;
        if (work.head >= 0) { // while the products run
          const int b = work.head / p.base.q_heads;
          Tiles::move_to(work.origin, group);
          next = GridPlace(QueryShape(), p, args, b, work.head - b * p.base.q_heads, work.origin, row_of_box);
        }
        wgmma::wait<0>(o);
        if (ends) store();
        if (work.head < 0) break;
        q.advance(has_tile);
        has_tile = works = true;
        place = next;
        live = {};
        softmax = {};
      }

      wgmma::wait<1>(s); // S is complete
      k.release();
      k.advance();
      StepBias<Mod::Exponents, 2> bias(softmax, place);
      if (is_beside(step.origin))
        apply_mod_beside_grid(s, p, args, place, step.origin, bias);
      else
        apply_mod_on_grid<KeyShape>(s, p, args, place, live, step.origin, bias,
                                    kBlockSparse && (step.flags & BoxStep::kFull));
      Rescaling<2> rescaling;
      const bool exact = step.flags & BoxStep::kFew || p.base.row_max;
      follow_maxima<Element>(s, softmax, bias, place, args, exact, rescaling);
      to_exponents(s, bias, place);

      // P, first without waiting for O; see forward_sm90.cu.
      WeightSums<2> sums(softmax);
      constexpr int kGroups = kBlockN / 8, kEarly = kGroups / 4;
      const bool k_ready = is(step, BoxStep::kLast) || k.try_wait();
      to_weights<0, kEarly>(s, sums);
      if (!k_ready) [[unlikely]]
        k.wait();

      wgmma::wait<0>(o); // O is complete
      v.release(has_v);
      v.advance(has_v);
      if (skipped > 0) [[unlikely]]
        release_skipped();
      if (rescaling.is_due) [[unlikely]]
        o.scale_rows(rescaling.factors);
      const bool v_ready = v.try_wait();
      to_weights<kEarly, kGroups>(s, sums);
      weights.pack(s);
      sums.store(softmax);
      if (!v_ready) [[unlikely]]
        v.wait();
    }
  }
};

extern "C" __global__ void __launch_bounds__(threads_of(kWarps), 1)
    attnc_forward(const __grid_constant__ Params p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  const unsigned shared = shared_base(dynamic_shared);
  initialise<Memory>(shared, [&] {
    ptx::prefetch_tensor_maps(p.q, p.k, p.v, p.out);
    const RunMaps runs = run_maps(p);
    if constexpr (Mod::kHasBeside) prefetch_run_maps(runs.q, runs.k, runs.v, runs.out);
  });
  run_roles<kProducerRegisters, kConsumerRegisters>(
      [&](int warp) {
        if (warp == 0) {
          if (threadIdx.x == 0) Producer{p, shared}.run();
        } else if (warp == 1) {
          if (threadIdx.x == 32) Storer{p, shared}.run();
        } else if (warp == 2) {
          Planner{p, args, shared}.run();
        }
      },
      [&](int group) {
        Consumer{p, args, shared, group}.run();
      });
}

} // namespace attnc::grid
