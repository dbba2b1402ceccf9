// Backward attention over tokens on grids with wgmma and TMA, for sm_90a: dK and dV, and sums of dQ; tiles are boxes in
// space.
//
//   P = exp(mod(scale Q K^T) - lse),  G = P (dO V^T - delta),  dS = scale mod'(scale Q K^T) G
//   dV = P^T dO,  dK = dS^T Q,  dQ = dS K
//
// Like backward_sm90.cu, but a CTA takes box after box of kBlockN = 128 keys, and walks boxes of kBlockM queries from
// the first query that sees some of them. TMA loads boxes in place, from any start, and adds dQ in place: nothing is
// permuted. The planner asks the mod what each query sees; consumers test bits (algo/grid_queries.cuh,
// algo/grid_transposed_scores.cuh).
//
// If a mod has off-grid tokens (text, registers; algo/beside_grid.cuh), a CTA owns a box of keys, or as many of a run.
// Its steps take boxes of queries, then kBlockM queries of a run at a time. For pairs that are not both on their grids,
// the mod has constants that say whether they live, or mask_mod is called for each.
//
// If kDeterministic, tiles of keys add to dQ in turns: algo/grid_steps.cuh.
//
//   role          threads                        registers   what
//   producer      warp 0                         24 or 40    walks boxes of queries; issues loads of K, V, Q, dO
//   planner       warp 3                         24 or 40    walks the same boxes; fills the table of queries
//   storer i      a thread of warp 1, 2          24 or 40    adds dQ of consumer i to the sums, by TMA
//   consumer i    a warpgroup, 64 keys           240 or 232  products, mod, gradients; its loop: see backward_sm90.cu
//
//   shared memory   bytes                                      lifetime
//   KPart, VPart    kBlockN rows of K, of V                    a box of keys: until its last products are complete
//   QRing           kQStages tiles of kBlockM x kHeadDimQk     a slot: until dK of its step is complete
//   ORing           kStages tiles of kBlockM x kHeadDimV, dO   a slot: until dV of its step is complete
//   SRing           2 tiles of kBlockN x kBlockM, dS^T         a slot: until dQ of its step is complete
//   DqPart          a slab of 64 rows of 32 floats for each    a consumer's half: until TMA has read it
//                   32 columns of a consumer's dQ
//   Places          where 8 steps lie                          until dQ of the step is added
//   Turns           if kDeterministic, their turns             the same
//   Queries         kQStages QueryTables                       as the slot of Q
//   control words   messages and barriers
//
//   barrier           completed by                                         waited for by
//   box.full          planner: next box of keys is announced               producer
//   box.empty         producer: has read it                                planner
//   kv_full           producer: K and V requested; their bytes             consumers
//   kv_empty          consumers: last products of the box complete         producer
//   q.full            producer: Q requested; its bytes. Planner: message   consumers
//                     and table written
//   q.empty           consumers: dK of the step complete                   producer, planner
//   o.full            producer: dO requested; its bytes                    consumers
//   o.empty           consumers: dV of the step complete                   producer
//   s.full            consumers: dS written                                consumers
//   dq_full[i]        consumer i: dQ and message written                   storer i
//   dq_empty[i]       storer i: TMA has read dQ                            consumer i
//   __syncthreads_or  if kDeterministic: the planner has a first box, or   all threads
//                     none is left and the CTA ends
//
// SRing needs no empty barrier, as in backward_sm90.cu. Places and Turns need no barriers: the producer requests step
// j + 5 only after the storer of dQ(j) has read its place and turn.
//
// Messages: with Q flags, b, h, and the box of keys. b < 0: the box has no more steps, there is no Q, and h says
// whether another box follows. With dQ: < 0 ends the storer.
//
// The host provides: tensor maps, sums and counters zeroed; grid min(boxes of keys * kv_heads * kv_batch, SMs), 384
// threads, kSharedBytes of dynamic shared memory. d_k and d_v have 16-byte aligned rows. Runs after backward_delta.cu
// and before backward_grid_finish_sm90.cu. Unless Mod::kHasBeside, all tokens lie on the grids.
//
// Config: kBlockN = 128, kWarps = 8; kBlockM = 128 up to head dim 64, or 64; kQStages = 3, kStages = 2;
//   kQueryBox    a step's box of queries, kBlockM tokens
//   kKeyBox      a CTA's box of keys
//   kDeterministic
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/backward_sm90.cuh"
#include "algo/d_q_box.cuh"
#include "algo/grid_maps.cuh"
#include "algo/grid_steps.cuh"
#include "algo/grid_transposed_scores.cuh"
#include "algo/tile_order.cuh"
#include "params_grid_sm90.cuh"
#include "ptx/turn.cuh"
#include "tile/store_wgmma.cuh"

namespace attnc::sm90 {

using Params = Choose<Mod::kHasBeside, BackwardGridBesideParamsSm90, BackwardGridParamsSm90>::Type;

using QueryBox = BoxShape<kQueryBox[0], kQueryBox[1], kQueryBox[2]>;
using OwnBox = BoxShape<kKeyBox[0], kKeyBox[1], kKeyBox[2]>; // of keys
static_assert(OwnBox::kTokens == kBlockN, "two warpgroups own 64 keys each");
static_assert(QueryBox::kTokens == kBlockM && (kBlockM == 64 || kBlockM == 128), "a step is a box");
// See backward_sm90.cu.
constexpr bool kTight = kHasRates || kReadsQueries;
constexpr bool kLateDelta = kTight || kHeadDimQk > 96, kLateBias = kReadsQueries && kHeadDimQk > 64;

using Table = QueryTable<Mod, OwnBox, kBlockM>;
using Place = KeyPlace<Mod, OwnBox>;

using DqOut = DqBox<QueryBox>;

struct QRing : QRingOf<2> {};
/// Messages only: the box, < 0: no more.
struct BoxRing : RingParts<BoxRing, KTile, 2, 2, Arrivals{.full = 1, .empty = 1}, 0> {};
struct KvEmpty : BarrierParts<KvEmpty, 1, kWarps> {};
/// Origin of step j, fastest axis first, and its head over all batches, in slot j % 8.
struct Places : SharedPart<Places, 8 * 16> {};
/// turn_of() step j, in slot j % 8.
struct Turns : SharedPart<Turns, kDeterministic ? 8 * 4 : 0> {};
struct Queries : SharedPart<Queries, kQStages * Table::kBytes> {};
using Memory =
    SharedMemory<KPart, VPart, QRing::Slots, ORing::Slots, SRing::Slots, DqPart<DqOut>, QRing::Control, ORing::Control,
                 SRing::Control, BoxRing::Control, KvFull, KvEmpty, DqMessage, DqFull, DqEmpty, Places, Turns, Queries>;
static_assert(Memory::kBytes == kSharedBytes, "the host asks for another size: src/plan");

ATTNC_DEVICE unsigned place_at(unsigned shared, int step) {
  return shared + Memory::offset_of<Places>() + step % 8 * 16;
}
ATTNC_DEVICE unsigned turn_at(unsigned shared, int step) { return shared + Memory::offset_of<Turns>() + step % 8 * 4; }
ATTNC_DEVICE Table table_of(unsigned shared, int slot) {
  return {{shared + Memory::offset_of<Queries>() + slot * Table::kBytes}};
}

/// Maps of runs; none without Mod::kHasBeside.
struct RunMaps {
  const TensorMap *q, *k, *v, *d_out, *sums;
};
ATTNC_DEVICE RunMaps run_maps(const BackwardGridParamsSm90&) { return {}; }
ATTNC_DEVICE RunMaps run_maps(const BackwardGridBesideParamsSm90& p) {
  return {p.q_run, p.k_run, p.v_run, p.d_out_run, p.sums_run};
}

// NOTE: constructed again at each use, because registers are scarce in between.
ATTNC_DEVICE OwnPlace<OwnBox> own_place(const Params& p, int index) {
  const TilePlace tile = tile_at(p.order, index);
  return {p, tile.head, tile.q_tile};
}

// ----------------------------------------------------------------------------------------------- producer and planner

/// The producer warp: issues loads of K and V of each box of keys, and of Q and dO of its steps.
struct Producer {
  const Params& p;
  const ModArgs& args;
  unsigned shared;
  const bool leads = threadIdx.x == 0;
  Ring<Memory, QRing> q = {shared};
  Ring<Memory, ORing> o = {shared};
  Ring<Memory, BoxRing> boxes = {shared};
  unsigned kv_parity = 0;
  int steps = 0;

  ATTNC_DEVICE void request_kv(const OwnPlace<OwnBox>& own) {
    ptx::mbarrier_wait(Barriers<Memory, KvEmpty>{shared}[0], kv_parity ^ 1);
    kv_parity ^= 1;
    if (!leads) return;
    const unsigned full = Barriers<Memory, KvFull>{shared}[0];
    ptx::mbarrier_arrive_expect_tx(full, KTile::kBytes + VTile::kBytes);
    const int(&at)[3] = own.origin;
    request_tile(k_tile_of<Memory>(shared), map_of(p.k, run_maps(p).k, at), full, at,
                 own.head + own.b * p.k_batch_step);
    request_tile(v_tile_of<Memory>(shared), map_of(p.v, run_maps(p).v, at), full, at,
                 own.head + own.b * p.v_batch_step);
  }

  ATTNC_DEVICE void request_step(int b, int h, const int (&at)[3]) {
    q.acquire();
    if (leads) {
      ptx::st_shared(place_at(shared, steps), {at[2], at[1], at[0], b * p.base.forward.q_heads + h});
      ptx::mbarrier_arrive_expect_tx(q.full(), QTile::kBytes);
      request_tile(q.tile(), map_of(p.q, run_maps(p).q, at), q.full(), at, h + b * p.q_batch_step);
    }
    o.acquire();
    if (leads) {
      ptx::mbarrier_arrive_expect_tx(o.full(), OTile::kBytes);
      request_tile(o.tile(), map_of(p.d_out, run_maps(p).d_out, at), o.full(), at, h + b * p.d_out_batch_step);
    }
    q.advance();
    o.advance();
    ++steps;
  }

  ATTNC_DEVICE int next_box() {
    boxes.wait();
    int message[2];
    boxes.read_message(message);
    __syncwarp();
    if (leads) ptx::mbarrier_arrive(boxes.empty());
    boxes.advance();
    return message[0];
  }

  ATTNC_DEVICE void run() {
#pragma unroll 1
    for (int box = next_box(); box >= 0; box = next_box()) {
      const auto own = own_place(p, box);
      bool has_kv = false; // Q of the first step is requested before K and V, which the last box may still need
      for_each_step<QueryBox, kDeterministic>(p, args, own,
                                              [&](const Mod::Head& head, int b, int h, const int(&at)[3]) {
                                                if constexpr (kDeterministic) {
                                                  const int turn = turn_of<QueryBox>(p, args, head, b, h, own, at);
                                                  if (leads) ptx::st_shared(turn_at(shared, steps), turn);
                                                }
                                                request_step(b, h, at);
                                                if (!has_kv) request_kv(own);
                                                has_kv = true;
                                              });
      if (!has_kv) request_kv(own);
      q.acquire();
      if (leads) ptx::mbarrier_arrive(q.full());
      q.advance();
    }
  }
};

/// The planner warp: asks the mod what queries see, and sends consumers the steps.
struct Planner {
  const Params& p;
  const ModArgs& args;
  unsigned shared;
  Ring<Memory, QRing> q = {shared};
  Ring<Memory, BoxRing> boxes = {shared};

  ATTNC_DEVICE void commit_box(int box) {
    boxes.acquire();
    if (threadIdx.x % 32 == 0) {
      boxes.write_message({box, 0});
      ptx::mbarrier_arrive(boxes.full());
    }
    boxes.advance();
  }
  ATTNC_DEVICE void commit(const int (&message)[4]) {
    if (threadIdx.x % 32 == 0) {
      q.write_message(message);
      ptx::mbarrier_arrive(q.full());
    }
    q.advance();
  }

  ATTNC_DEVICE void plan_step(const Mod::Head& head, int b, int h, const int (&at)[3], const int (&own)[3], int box) {
    constexpr int kEach = kBlockM / 32; // queries per lane
    const int lane = threadIdx.x % 32;
    Token token[kEach];
    bool exists[kEach];
    unsigned seen[kEach];
    float lse[kEach], delta[kEach];
    const TokensBeside beside = beside_of(p);
    const bool asks = asks_pairs(at, own);
    const int keys = is_beside(own) ? left_of_run(own, beside.kv) : kBlockN; // keys that exist
    bool all = !asks && keys >= kBlockN;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      token[i] = find_token(QueryBox(), at, lane + 32 * i, p.q_extent, beside.q, exists[i]);
      const long long index = row_of_all(p.base.forward, b, h, token[i].index);
      lse[i] = p.base.forward.lse[index];
      delta[i] = p.base.delta[index];
      const GridRange range =
          is_beside(at) ? whole_grid(p.kv_extent) : keys_of(args, head, b, h, token[i], p.kv_extent);
      seen[i] = exists[i] ? KeyBits<OwnBox>::within(range, own) : 0;
      all &= seen[i] == KeyBits<OwnBox>::kAll;
    }
    q.acquire();
    const Table table = table_of(shared, q.slot);
#pragma unroll
    for (int i = 0; i < kEach; ++i) table.fill(args, head, b, h, token[i], lane + 32 * i, exists[i], lse[i], delta[i]);
    all = __all_sync(0xffffffffu, all);
    if (!all) table.fill_live(seen, keys);
    __syncwarp();
    commit({all ? 0 : kStepMasked | (Mod::kHasBeside && asks ? kStepAsks : 0), b, h, box});
  }

  /// Fills the tables of all slots with a row that score() may be asked about: consumers also call it after the last
  /// step of a box, with rows of an earlier step. A branch around products in flight would serialise them.
  ATTNC_DEVICE void fill_first_rows() const {
    const Mod::Head head = Mod::head(args, 0, 0); // SEAM(head)
    const int first[3] = {};
    bool exists;
    const Token token = find_token(QueryBox(), first, 0, p.q_extent, beside_of(p).q, exists);
#pragma unroll 1
    for (int i = threadIdx.x % 32; i < kQStages * kBlockM; i += 32)
      table_of(shared, i / kBlockM).fill(args, head, 0, 0, token, i % kBlockM, false, 0.f, 0.f);
    __syncwarp();
  }

  /// `first`: in lane 0, the box that was dealt first.
  ATTNC_DEVICE void run(int first) {
    if constexpr (Mod::Exponents::kCallsScore) fill_first_rows();
    TileScheduler scheduler{p.order};
    if constexpr (kDeterministic) scheduler.index = __shfl_sync(0xffffffffu, first, 0);
#pragma unroll 1
    while (scheduler.valid()) {
      const int box = scheduler.index;
      commit_box(box);
      const auto own = own_place(p, box);
      for_each_step<QueryBox, kDeterministic>(
          p, args, own,
          [&](const Mod::Head& head, int b, int h, const int(&at)[3]) { plan_step(head, b, h, at, own.origin, box); });
      scheduler.advance<32>(); // only now, so that the last boxes go to the first idle CTAs
      if constexpr (kDeterministic) scheduler.index -= int(gridDim.x);
      q.acquire();
      commit({0, -1, scheduler.valid(), box});
    }
    commit_box(-1);
  }
};

// ---------------------------------------------------------------------------------------------------------- consumer

struct Consumer : ConsumerParts<Consumer, Params, Memory, QRing, DqOut, kTight> {
  unsigned kv_parity = 0;

  /// Returns the lane's row 0 among the keys of the box.
  ATTNC_DEVICE int first_key() const { return 64 * group + ptx::opaque(threadIdx.x) / 32 % 4 * 16 + Scores::row(0); }

  template <int Begin, int End>
  ATTNC_DEVICE void drop(Weights& weights, const ForwardParams&, const Place& place, Table table, Step step) const {
    drop_dead<Begin, End>(weights, args, place, table, first_key(), asks_in(step.flags));
  }

  template <int Begin, int End>
  ATTNC_DEVICE void drop_gradients(Gradients& d_s, const Gradients& rates, Table table) const {
    drop_dead<Begin, End>(d_s, rates, table, first_key());
  }

  /// Epilogue: stores dK or dV times `factor`, or zeros unless `really`.
  template <int Columns, class Out>
  ATTNC_DEVICE void store(Out x, bool really, float factor, void* to, const Strides& stride,
                          const OwnPlace<OwnBox>& own) const {
    if (!really) x.fill(0.f);
    Element* const base = (Element*)to + own.b * stride.batch + own.head * stride.head;
    const int first = first_key();
    const TokensBeside beside = beside_of(p);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      bool exists;
      const Token kv = find_token<OwnBox, false>(OwnBox(), own.origin, first + 8 * r, p.kv_extent, beside.kv, exists);
      wgmma::store_row<Columns>(base + kv.index * stride.row, x, r, factor, exists);
    }
  }

  /// Finishes a box of keys after its last products.
  template <class DK, class DV> ATTNC_DEVICE void end_box(const DK& d_k, const DV& d_v, int box, bool has_steps) {
    arrive_by_warp(Barriers<Memory, KvEmpty>{shared}[0]);
    q.release();
    commit_d_q(has_steps);
    const auto own = own_place(p, box);
    store<kHeadDimQk>(d_k, has_steps, p.base.forward.scale, p.base.d_k, p.base.d_k_stride, own);
    store<kHeadDimV>(d_v, has_steps, 1.f, p.base.d_v, p.base.d_v_stride, own);
  }
  ATTNC_DEVICE void await_kv() {
    ptx::mbarrier_wait(Barriers<Memory, KvFull>{shared}[0], kv_parity);
    kv_parity ^= 1;
  }

  ATTNC_DEVICE void run() {
    Fragment<1, KTile::kColumns> d_k;
    Fragment<1, VTile::kColumns> d_v;
    Scores s, d_p;
    Weights weights;
    Gradients d_s;
    Place place;
    const int first[3] = {};
    if constexpr (Mod::Exponents::kCallsScore) place = Place(p, args, 0, 0, first, first_key());
    DeltaOf<Table, kLateDelta> delta; // of the last step
    bool has_older = false;           // steps before the last one
    bool has_last = false, masked = false;
    table_of(shared, 0).load_delta(delta); // meaningless yet, but its address must be one
    await_kv();
#pragma unroll 1
    while (true) {
      // In flight: dP and dV of the last step.
      DqOut::Part d_q;
      wgmma::wait<1>(d_p); // dP is complete
      const Table last_table = table_of(shared, q.slot_before());
      differentiate<0, kFirst>(d_p, weights, d_s, delta, masked, last_table);
      wgmma::wait<0>(d_v); // dV is complete
      o.release_before(has_last);
      q.wait();
      int message[4];
      q.read_message(message);
      const Table table = table_of(shared, q.slot);
      const auto bias = table.template bias<0, kEarly, kLateBias>();
      if constexpr (kSplit == 1) write_d_s(d_s), commit_d_s();
      start_scores(s); // of the next step; garbage after the last one
      differentiate<kFirst, kGroups>(d_p, weights, d_s, delta, masked, last_table);
      start_d_k_and_d_q(d_k, d_q, d_s, has_older);

      const bool ends = message[1] < 0;
      if (!ends && (message[1] != place.b || message[2] != place.h || !has_last)) [[unlikely]] {
        const auto own = own_place(p, message[3]);
        place = Place(p, args, message[1], message[2], own.origin, first_key());
      }
      masked = message[0] & kStepMasked;
      const Step step = {0, message[0]};
      wgmma::wait<2>(s); // S is complete
      const bool small = are_small(place, s);
      weigh<0, kEarly>(s, weights, place, table, bias, step, masked, small, p.base.forward);

      wgmma::wait<0>(d_k, d_q); // dK and dQ of the last step are complete
      const auto late_bias = table.template bias<kEarly, kGroups, kLateBias>();
      q.release_before(has_last);
      s_ring.advance();
      write_d_q(d_q, 0);
      if (ends) [[unlikely]] {
        end_box(d_k, d_v, message[3], has_last);
        if (!message[2]) break;
        await_kv();
        has_last = false;
      } else {
        o.wait();
      }
      start_d_p(d_p);
      weigh<kEarly, kGroups>(s, weights, place, table, late_bias, step, masked, small, p.base.forward);
      commit_d_q(has_last);
      table.load_delta(delta);
      start_d_v(d_v, weights, has_last);
      q.advance();
      o.advance(!ends);
      has_older = has_last;
      has_last = !ends;
    }
    write_d_q({}, -1);
    commit_d_q(true);
  }
};

// ------------------------------------------------------------------------------------------------------------- storer

/// One thread per consumer: adds its dQ to the sums, if kDeterministic once it is its turn.
struct Storer {
  const Params& p;
  unsigned shared;
  int group;

  /// Returns whose turn it is to add to the cell at `at`: a counter for the rows or columns of `group`, by the cell's
  /// first query. `head`: over all batches.
  ATTNC_DEVICE int* turn_of_cell(const int (&at)[3], int head) const {
    bool exists;
    const Token first = find_token(QueryBox(), at, 0, p.q_extent, beside_of(p).q, exists);
    return (int*)p.order.counters + 1 + 2 * ((long long)head * p.base.forward.q_len + first.index) + group;
  }

  ATTNC_DEVICE void run() {
    const unsigned from = shared + Memory::offset_of<DqPart<DqOut>>() + group * DqOut::kPartBytes;
    constexpr int kRowsAxis = DqOut::kRowsAxis;
    unsigned parity = 0;
    int step = 0;
    while (true) {
      ptx::mbarrier_wait(Barriers<Memory, DqFull>{shared}[group], parity);
      parity ^= 1;
      if (ptx::ld_shared_int(d_q_message<Memory>(shared, group)) < 0) break;
      int x[4];
      ptx::ld_shared(x, place_at(shared, step++));
      int at[3] = {x[2], x[1], x[0]};
      int turn = 0, *next = nullptr;
      if constexpr (kDeterministic) {
        turn = ptx::ld_shared_int(turn_at(shared, step - 1)), next = turn_of_cell(at, x[3]);
        for (int now = 0; now < turn;) now = ptx::load_acquire(next);
        ptx::fence_proxy_async_global();
      }
      const TensorMap& map = map_of(p.sums, run_maps(p).sums, at);
      if (DqOut::kByRows && is_beside(at))
        at[2] += group * 64;
      else if (DqOut::kByRows)
        at[kRowsAxis] += group * (QueryBox::extent(kRowsAxis) / 2);
      const int column = DqOut::kByRows ? 0 : DqOut::kColumns * group;
#pragma unroll
      for (int slab = 0; slab < DqOut::kSlabs; ++slab)
        if (turn >= 0)
          ptx::tma_add_5d(map, from + slab * DqOut::kSlabBytes, column + 32 * slab, at[2], at[1], on_map(at, 0), x[3]);
      ptx::bulk_commit_group();
      ptx::bulk_wait_read();
      ptx::mbarrier_arrive(Barriers<Memory, DqEmpty>{shared}[group]);
      if (kDeterministic && turn >= 0) {
        ptx::bulk_wait();
        ptx::fence_proxy_async_global();
        ptx::store_release(next, turn + 1);
      }
    }
    ptx::bulk_wait();
  }
};

extern "C" __global__ void __launch_bounds__(threads_of(kWarps), 1)
    attnc_backward(const __grid_constant__ Params p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  const unsigned shared = shared_base(dynamic_shared);
  initialise<Memory>(shared, [&] {
    ptx::prefetch_tensor_maps(p.q, p.k, p.v, p.d_out, p.sums);
    const RunMaps runs = run_maps(p);
    if constexpr (Mod::kHasBeside) prefetch_run_maps(runs.q, runs.k, runs.v, runs.d_out, runs.sums);
  });
  // Deterministic: the counter also deals the first box, so that a tile waits only for those of CTAs that run, however
  // few these are. Others may find none left.
  int first = 0;
  if constexpr (kDeterministic) {
    const bool deals = threadIdx.x == 96; // lane 0 of the planner
    if (deals) first = int(atomicAdd(p.order.counters, 1u));
    if (!__syncthreads_or(deals && first < p.order.q_tiles * p.order.heads)) return;
  }
  run_roles<kProducerRegisters, kConsumerRegisters>(
      [&](int warp) {
        if (warp == 0)
          Producer{p, args, shared}.run();
        else if (warp == 3)
          Planner{p, args, shared}.run(first);
        else if (threadIdx.x % 32 == 0)
          Storer{p, shared, warp - 1}.run();
      },
      [&](int group) {
        Consumer{p, args, shared, group}.run();
      });
}

} // namespace attnc::sm90
