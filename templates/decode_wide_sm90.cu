// Split-KV forward attention for head dims above 256, with TMA and wgmma, for sm_90a: few queries over long KV.
//
//   S = scale Q K^T,  P = softmax(mod(S)),  O = P V,  lse = log sum exp mod(S)
//
// Rows of a tile are those of algo/decode.cuh. Tiles of one head are dealt to teams of CTAs (algo/decode_work.cuh). O
// of 64 rows and 512 columns is too large for a warpgroup, so two share it, half of the columns each. With kVInK, V is
// the first columns of K (latent attention, DeepSeek-V2, arXiv:2405.04434): their tile is loaded once, and both
// products read it.
//
//   loader     a warp of the first warpgroup: loads K and V
//   scorers    the second: S of all columns, the softmax, and the first half of O. S of the next step is computed
//              meanwhile, so that the tensor cores do not wait for the softmax
//   helpers    the third: the second half of O, from weights in shared memory; they load Q
//
//   shared memory   bytes                              lifetime
//   RingPart        kStages slots of kBlockN rows      a slot: from load to use
//   QPart           64 rows                            an item
//   Weights         P of two steps, side by side       a step
//   Barriers        below                              whole kernel
//   Factors         of O by row, of two steps          a step
//   States          of the rows of two items           an item's end
//   Words           for the dealer                     the beginning
//
//   barrier         completed by                                     arrivals    waited for by
//   full            the loader: boxes of K and V are requested,      1           scorers, helpers
//   (per slot)      or have no row; their bytes
//   empty           a lane of each warp of scorers and helpers,      8           the loader
//   (per slot)      which have multiplied
//   kQReady         helpers: Q of an item is there                   named       scorers
//   kWeightsReady   scorers: weights and factors of a step are       named       helpers
//   (two)           there, rows of K and V are mended
//   kWeightsFree    helpers have multiplied                          named       scorers
//   (two)
//   kItemDone       both, after the last step: states are there      named       both
//   kScorers        scorers have mended rows                         named       scorers
//
// Parts of items are merged by decode_merge.cu: a tile's O is too large for a single CTA to merge in good time.
//
// Grid: any size; if items are divided, there are parts for each CTA. Threads: kThreadsOfWide. Dynamic shared memory:
// kSharedBytes.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/decode_copies_sm90.cuh"
#include "algo/decode_parts.cuh"
#include "algo/packed_q.cuh"
#include "algo/warp_roles.cuh"
#include "tile/gemm_wgmma.cuh"
#include "tile/shared_memory.cuh"
#include "tile/store_wgmma.cuh"

namespace attnc::decode {

static_assert(kBlockM == 64 && kWarps == 8, "two warpgroups share the rows of one");

constexpr int kGroupThreads = 128, kThreadsOfWide = threads_of(kWarps);
// 168 on average. The loader of pages looks them up ahead.
constexpr int kLoaderRegisters = kPageSize ? 40 : 24, kConsumerRegisters = kPageSize ? 232 : 240;
constexpr int kHalf = round_up(kHeadDimV, 128) / 2; // columns of O of a warpgroup

using Params = typename ParametersOf<DecodeParamsSm90, kIsCached>::Type;
using Dealer = DecodeDealer<Mod, kBlockM, kBlockN, kThreadsOfWide, Team>;
using Work = Dealer::Work;
using Scores = Fragment<1, kBlockN>;
using Out = Fragment<1, kHalf>;
using QTile = SwizzledTile<Element, kBlockM, kHeadDimQk>;
using KTile = SwizzledTile<Element, kBlockN, kHeadDimQk>;
using VTile = SwizzledTile<Element, kBlockN, kHeadDimV>;
using VHalf = SwizzledTile<Element, kBlockN, kHalf>;
using WeightsTile = SwizzledTile<Element, kBlockM, 64>;
using StepWeights = SwizzledTile<Element, kBlockM, kBlockN>; // columns of WeightsTile
using Boxes = KvBoxes<KTile, VTile, kBlockN, kGroupThreads, !kVInK>;
static_assert(kVInK || VTile::kSlabBytes == KTile::kSlabBytes, "V lies behind K, in slabs of as many rows");
static_assert(2 * kBlockN <= WeightsTile::kSlabColumns, "weights of two steps lie side by side");

constexpr int kSlotBytes = Boxes::kBytes;
struct RingPart : SharedPart<RingPart, kStages * kSlotBytes, 1024> {};
struct QPart : SharedPart<QPart, QTile::kBytes, 1024> {};
struct Weights : SharedPart<Weights, WeightsTile::kBytes, 1024> {};
struct Barriers : SharedPart<Barriers, 2 * 8 * kStages, 8> {};
struct Factors : SharedPart<Factors, 2 * 4 * kBlockM, 16> {};
struct States : SharedPart<States, 2 * 8 * kBlockM, 16> {};
struct Words : SharedPart<Words, 4 * (kThreadsOfWide / 32 + 2), 4> {};
using Memory = SharedMemory<RingPart, QPart, Weights, Barriers, Factors, States, Words>;
static_assert(Memory::kBytes == kSharedBytes, "the host asks for another size: src/plan");

enum NamedBarrier {
  kQReady = 1,
  kWeightsReady,
  kWeightsFree = kWeightsReady + 2,
  kItemDone = kWeightsFree + 2,
  kScorers
};

ATTNC_DEVICE void sync_pair(int barrier) { ptx::named_barrier_sync<2 * kGroupThreads>(barrier); }
ATTNC_DEVICE void arrive_pair(int barrier) { ptx::named_barrier_arrive<2 * kGroupThreads>(barrier); }

/// The ring of a role: its slot, and how often it has come round.
struct RingPosition {
  unsigned shared;
  int slot = 0;
  unsigned round = 0;

  ATTNC_DEVICE void advance() {
    if (++slot == kStages) slot = 0, ++round;
  }
  ATTNC_DEVICE KTile k() const { return {shared + unsigned(slot * kSlotBytes)}; }
  ATTNC_DEVICE VTile v() const { return {k().base + (kVInK ? 0 : KTile::kBytes)}; }
  template <int Half> ATTNC_DEVICE VHalf v_half() const {
    return {v().base + Half * (kHalf / VHalf::kSlabColumns) * VHalf::kSlabBytes};
  }
  ATTNC_DEVICE unsigned full() const { return barriers() + 8 * slot; }
  ATTNC_DEVICE unsigned empty() const { return barriers() + 8 * (kStages + slot); }
  ATTNC_DEVICE void wait_full() const { ptx::mbarrier_wait(full(), round & 1); }
  ATTNC_DEVICE void wait_empty() const { ptx::mbarrier_wait(empty(), ~round & 1); }
  /// Gives the slot back to the loader. Called by whole warps that have read it.
  ATTNC_DEVICE void release() const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(empty());
  }

private:
  ATTNC_DEVICE unsigned barriers() const { return shared + unsigned(Memory::offset_of<Barriers>()); }
};

/// What is in shared memory besides the ring.
struct Shared {
  unsigned base;
  ATTNC_DEVICE RingPosition ring() const { return {base + unsigned(Memory::offset_of<RingPart>())}; }
  ATTNC_DEVICE QTile q() const { return {base + unsigned(Memory::offset_of<QPart>())}; }
  ATTNC_DEVICE WeightsTile weights() const { return {base + unsigned(Memory::offset_of<Weights>())}; }
  ATTNC_DEVICE StepWeights weights_of(int parity) const {
    return {weights().base + unsigned(parity * kBlockN) * unsigned(sizeof(Element))};
  }
  ATTNC_DEVICE unsigned factor(int parity, int row) const {
    return base + unsigned(Memory::offset_of<Factors>()) + 4u * unsigned(parity * kBlockM + row);
  }
  ATTNC_DEVICE unsigned state(int parity, int row) const {
    return base + unsigned(Memory::offset_of<States>()) + 8u * unsigned(parity * kBlockM + row);
  }
};
static_assert(Memory::offset_of<RingPart>() == 0, "RingPosition counts from the beginning");

/// Returns the first of the lane's two rows, which are 8 apart, of the tile.
ATTNC_DEVICE int first_row() { return int(threadIdx.x) / 32 % 4 * 16 + Out::row(0); }

/// Stores a half of O of an item: results, or this CTA's part. The first half brings lse and row maximum.
template <int Half>
ATTNC_DEVICE void store_half(const Out& o, const RowState (&state)[2], const DecodeParams& decode, const ModArgs& args,
                             const Work& work) {
  const PackedParams& p = decode.forward;
  const int column = Half * kHalf + Out::first_column();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row() + 8 * r;
    if (row >= work.tile.rows) continue;
    const bool stores_state = Half == 0 && threadIdx.x % 4 == 0;
    if (work.share.is_whole()) {
      const float factor = normalise(state[r], p, args, work.tile, row);
      Element* out = (Element*)p.out + work.tile.b * p.out_stride.batch + work.tile.head(p, row) * p.out_stride.head +
                     work.tile.row_of_q(p, row) * p.out_stride.row + column;
#pragma unroll
      for (int n = 0; n < Out::kGroups; ++n) {
        if (Half * kHalf + 8 * n >= kHeadDimV) continue;
        const float x = o.at(r, n, 0) * factor, y = o.at(r, n, 1) * factor;
        if (p.vectors)
          store2(out + 8 * n, x, y);
        else
          out[8 * n] = from_float<Element>(x), out[8 * n + 1] = from_float<Element>(y);
      }
      if (stores_state) store_state(state[r], p, args, work.tile, row);
    } else {
      const Part part(decode, blockIdx.x, work.share.own_place());
#pragma unroll
      for (int n = 0; n < Out::kGroups; ++n)
        if (Half * kHalf + 8 * n < kHeadDimV)
          store2(part.out + row * kHeadDimV + column + 8 * n, o.at(r, n, 0), o.at(r, n, 1));
      if (stores_state) {
        float x[4];
        state[r].store(x);
        ptx::st_global_cg(part.state + row * 4, x);
      }
    }
  }
}

/// The warp that loads K and V.
ATTNC_DEVICE void load(const Params& p, const ModArgs& args, Dealer dealer, Shared shared) {
  RingPosition ring = shared.ring();
  Boxes boxes;
  Work work;
#pragma unroll 1
  while (dealer.next(p, args, work))
#pragma unroll 1
    for (int i = 0; i < work.walk.count; ++i, ring.advance()) {
      ring.wait_empty();
      boxes.load<32>(p, work, i, 0, ring.k(), ring.v(), ring.full());
    }
}

/// Starts S of step i of an item; its rows of K and V are then whole.
ATTNC_DEVICE void start_scores(Scores& s, const Params& p, const Work& work, int i, QTile q, RingPosition& ring) {
  ring.wait_full();
  if (Boxes::mend(p, work.tile, work.walk.start_of(i), work.walk.length, ring.k(), ring.v()))
    ptx::named_barrier_sync<kGroupThreads>(kScorers);
  wgmma::touch(s);
  ptx::wgmma_fence();
  wgmma::start_gemm(s, q, transposed(ring.k()), 0);
  ptx::wgmma_commit_group();
  ring.advance();
}

/// The warpgroup that computes scores and weights, and the first half of O.
ATTNC_DEVICE void score(const Params& decode, const ModArgs& args, Dealer dealer, Shared shared) {
  const PackedParams& p = decode.forward;
  RingPosition ring = shared.ring(), ahead = ring;
  const int first = first_row();
  int parity = 0, item_parity = 0;
  Work work;
#pragma unroll 1
  while (dealer.next(decode, args, work)) {
    const int count = work.walk.count;
    if constexpr (kAppends)
      if (work.share.begin == 0 && work.tile.first == 0)
        append_rows<kGroupThreads>(p, cache_of(decode), pages_of(decode, work.tile.b), work.walk.length, work.tile.b,
                                   work.tile.kv_head, 0, p.q_len, int(threadIdx.x) % kGroupThreads);
    const float scale[2] = {p.scale, p.scale};
    const PackedPlace<Mod> place(p, args, work.tile, first, scale);
    Softmax<2> softmax;
    Out o;
    o.fill(0.f);
    Scores s;
    if (count > 0) {
      sync_pair(kQReady);
      start_scores(s, decode, work, 0, shared.q(), ahead);
      wgmma::wait<0>(s);
    }
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      Scores next;
      if (i + 1 < count) start_scores(next, decode, work, i + 1, shared.q(), ahead);
      const int start = work.walk.start_of(i);
      const Step step = {start, work.walk.flags_of(i, start)};
      StepBias<Mod::Exponents, 2> bias(softmax, place);
      apply_mod(s, args, PackedSite<Mod>{p, args, place, step}, bias);
      float factor[2] = {1.f, 1.f};
      if constexpr (kIsWeight<Mod>) {
        scores_to_weights(s);
      } else {
        follow_maxima<Element>(s, softmax, bias, place, args, kRowMax || step.flags & kStepFew,
                               [&](const auto& factors) {
                                 o.scale_rows(factors);
                                 factor[0] = factors[0], factor[1] = factors[1];
                               });
        weights_of(s, softmax, bias, place);
      }
      if constexpr (kHasProbMod<Mod>) scale_weights<Mod>(s, args, PackedSite<Mod>{p, args, place, step});

      PackedFragment<Element, 1, kBlockN> weights;
      weights.pack(s);
      sync_pair(kWeightsFree + parity);
      wgmma::write_packed(shared.weights(), parity * kBlockN, weights);
      if (threadIdx.x % 4 == 0) {
        ptx::st_shared(shared.factor(parity, first), factor[0]);
        ptx::st_shared(shared.factor(parity, first + 8), factor[1]);
      }
      ptx::fence_proxy_async();
      arrive_pair(kWeightsReady + parity);

      wgmma::touch(o);
      ptx::wgmma_fence();
      wgmma::start_gemm(o, weights, ring.v_half<0>(), 1);
      ptx::wgmma_commit_group();
      wgmma::wait<0>(o, next);
      ring.release();
      ring.advance();
      parity ^= 1;
      s = next;
    }
    RowState state[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      state[r] = finish(softmax, r, place, args);
      if (threadIdx.x % 4 == 0)
        ptx::st_shared(shared.state(item_parity, first + 8 * r), {state[r].reference, state[r].sum});
    }
    sync_pair(kItemDone);
    item_parity ^= 1;
    store_half<0>(o, state, decode, args, work);
  }
}

/// The warpgroup that computes the second half of O, and loads Q.
ATTNC_DEVICE void help(const Params& decode, const ModArgs& args, Dealer dealer, Shared shared) {
  const PackedParams& p = decode.forward;
  RingPosition ring = shared.ring();
  const int first = first_row();
  int parity = 0, item_parity = 0;
  Work work, next;
  ItemShare last = {};
  const auto request_q = [&] {
    load_q<kGroupThreads, 2>(shared.q(), p, next.tile, int(threadIdx.x) % kGroupThreads);
    ptx::cp_async_commit_group();
  };
  const auto hand_q = [&] {
    ptx::cp_async_wait_group<0>();
    ptx::fence_proxy_async();
    arrive_pair(kQReady);
  };
  arrive_pair(kWeightsFree);
  arrive_pair(kWeightsFree + 1);
  bool has_next = dealer.next(decode, args, next);
  bool wants_q = has_next && next.walk.count > 0;
  if (wants_q) request_q(), hand_q();
#pragma unroll 1
  while (has_next) {
    work = next;
    last = work.share;
    has_next = dealer.next(decode, args, next);
    wants_q = has_next && next.walk.count > 0;
    Out o;
    o.fill(0.f);
#pragma unroll 1
    for (int i = 0; i < work.walk.count; ++i) {
      sync_pair(kWeightsReady + parity);
      if (i + 1 == work.walk.count && wants_q) request_q(); // the last S is complete, and so Q is free
      ring.wait_full();
      const float factor[2] = {ptx::ld_shared_float(shared.factor(parity, first)),
                               ptx::ld_shared_float(shared.factor(parity, first + 8))};
      if (__any_sync(0xffffffffu, factor[0] != 1.f || factor[1] != 1.f)) o.scale_rows(factor);
      wgmma::touch(o);
      ptx::wgmma_fence();
      wgmma::start_gemm(o, shared.weights_of(parity), ring.v_half<1>(), 1);
      ptx::wgmma_commit_group();
      wgmma::wait<0>(o);
      arrive_pair(kWeightsFree + parity);
      ring.release();
      ring.advance();
      parity ^= 1;
    }
    if (work.walk.count == 0 && wants_q) request_q();
    if (wants_q) hand_q();
    sync_pair(kItemDone);
    RowState state[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float2 x = ptx::ld_shared_float2(shared.state(item_parity, first + 8 * r));
      state[r] = {x.x, x.y};
    }
    item_parity ^= 1;
    store_half<1>(o, state, decode, args, work);
  }
  if (threadIdx.x % kGroupThreads == 0 && decode.part_out)
    SharedItem::of(decode, blockIdx.x) = SharedItem::of_last(last);
}

extern "C" __global__ void __launch_bounds__(kThreadsOfWide, 1)
    attnc_decode(const __grid_constant__ Params p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  const Shared shared = {shared_base(dynamic_shared)};
  if (threadIdx.x == 0) {
    for (RingPosition ring = shared.ring(); ring.round == 0; ring.advance()) {
      ptx::mbarrier_init(ring.full(), 1);
      ptx::mbarrier_init(ring.empty(), kWarps);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  const Dealer dealer(p, args, (int*)(dynamic_shared + Memory::offset_of<Words>()), p.teams);
  const auto serve = [&](int warp) {
    if (warp == 0) load(p, args, dealer, shared);
  };
  const auto consume = [&](int group) {
    if (group == 0)
      score(p, args, dealer, shared);
    else
      help(p, args, dealer, shared);
  };
  run_roles<kLoaderRegisters, kConsumerRegisters>(serve, consume);
}

} // namespace attnc::decode
