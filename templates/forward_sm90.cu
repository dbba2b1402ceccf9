// Forward attention with wgmma and TMA, for sm_90a.
//
//   S = scale Q K^T,  P = softmax(mod(S)),  O = P V,  lse = log sum exp mod(S)
//
// After FlashAttention-3 (Shah et al., arXiv:2407.08608). A CTA stays and takes one tile of kBlockM rows of Q after
// another. In its first warpgroup one warp, the producer, decides which tile and which KV steps come next,
// requests them from the copy engine, and computes what the mod loads for the columns of a step; another, the storer,
// sends finished tiles of O off. The other warpgroups, the consumers, own 64 rows each and follow the steps:
//
//   producer      K(i+1) V(i) K(i+2) V(i+1) ...                     as slots of the rings fall free
//   consumer 0    [S(i+1) = Q K(i+1), O += P(i) V(i)] softmax(i+1) [...]
//   consumer 1    softmax(i+1)                        [...]         takes turns with consumer 0 at the tensor cores
//
// S of the next step, which may be the first of the next tile, runs on the tensor cores ahead of O += P V; so a
// warpgroup has products under way during its softmax, and during the stores at the end of a tile.
//
//   shared memory   bytes                                         lifetime
//   q_ring          kQStages tile_bytes(kBlockM, kHeadDimQk)      a slot: one tile of Q rows, then, if there are two
//                   (of kHeadDimV if that is more and kQStages 2)   slots, its rows of O on their way out
//   k_ring          kStages tile_bytes(kBlockN, kHeadDimQk)       a slot: until S of its step is there
//   v_ring          kStages tile_bytes(kBlockN, kHeadDimV)        a slot: until P V of its step is there
//   control         40 kQStages + 40 kStages                      what the producer tells the consumers, and barriers
//   columns         kStages kBlockN sizeof(Mod::Col)              if the mod loads by column; as of k_ring
//
// The host provides: tensor maps, the tile order and its counters (params_sm90.cuh); grid min(tiles, SMs), 128 + 32
// kWarps threads, dynamic shared memory as above. out has 16-byte aligned rows; q_len >= 1.
//
// Config: kBlockM = 16 kWarps, kWarps 8 or 12, kStages, kQStages 1 or 2; with lists kBlockN divides the block.
// Seams: head, row, col, score, mask; optional: bounds (step_walk.cuh) and the hooks of mod/hooks.cuh.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/lazy_softmax.cuh"
#include "algo/scores_sm90.cuh"
#include "algo/step_walk.cuh"
#include "algo/tile_order.cuh"
#include "params_sm90.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/named_barrier.cuh"
#include "ptx/setmaxnreg.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/shared_sm90.cuh"
#include "tile/tile_sm90.cuh"

namespace attnc {

constexpr int kConsumers = kWarps / 4; // warpgroups that compute
static_assert(kBlockM == 64 * kConsumers, "a warpgroup owns 64 rows");
static_assert(kBlockN % 16 == 0, "P V takes 16 columns at a time");
constexpr int kThreads = 128 * (1 + kConsumers);
// Registers a thread; all together not more than the CTA is launched with, 168 or 128 a thread.
constexpr int kProducerRegisters = kConsumers == 2 ? 40 : 32;
constexpr int kConsumerRegisters = kConsumers == 2 ? 232 : 160;
static_assert(kConsumers == 2 || kConsumers == 3, "other register splits have not been chosen");

// ---------------------------------------------------------------------------------------------------------- producer

/// Threads of the producer: one, or a warp where it computes columns. All of them walk, one talks to the copy engine and
/// the barriers.
// NOTE: a warp where one thread would do costs 4 % at head dim 128; ptxas then keeps less of the consumers' state in
// uniform registers.
constexpr int kProducers = kColumnsLoad<Mod> ? 32 : 1;

struct Producer {
  const ForwardParamsSm90& p;
  const ModArgs& args;
  Shared shared;
  const bool leads = threadIdx.x == 0;
  RingPlace<kQStages> q;
  RingPlace<kStages> k, v;

  /// Where a step stands: its tile's coordinates and its first column.
  struct At {
    int b, h, kv_head, origin, kv_start;
  };

  ATTNC_DEVICE void tell_work(Work work) {
    ptx::mbarrier_wait(shared.q_empty(q.slot), q.parity ^ 1);
    if (leads) {
      ptx::st_shared(shared.work(q.slot), {work.b, work.h, work.q_start, work.valid});
      const unsigned full = shared.q_full(q.slot);
      if (work.valid) {
        ptx::mbarrier_arrive_expect_tx(full, kQBytes);
        request_tile<kBlockM, kHeadDimQk>(shared.q(q.slot), p.q, full, work.q_start, work.h, work.b * p.q_batch_step);
      } else {
        ptx::mbarrier_arrive(full);
      }
    }
    q.advance();
  }

  ATTNC_DEVICE void request_k(const At& at, int flags) {
    ptx::mbarrier_wait(shared.k_empty(k.slot), k.parity ^ 1);
    if (leads) {
      ptx::st_shared(shared.step(k.slot), {at.kv_start, flags});
      const unsigned full = shared.k_full(k.slot);
      ptx::mbarrier_arrive_expect_tx(full, kKBytes);
      request_tile<kBlockN, kHeadDimQk>(shared.k(k.slot), p.k, full, at.kv_start, at.kv_head, at.b * p.k_batch_step);
    }
  }

  ATTNC_DEVICE void request_v(const At& at) {
    ptx::mbarrier_wait(shared.v_empty(v.slot), v.parity ^ 1);
    if (leads) {
      const unsigned full = shared.v_full(v.slot);
      ptx::mbarrier_arrive_expect_tx(full, kVBytes);
      request_tile<kBlockN, kHeadDimV>(shared.v(v.slot), p.v, full, at.kv_start, at.kv_head, at.b * p.v_batch_step);
    }
    v.advance();
  }

  /// Columns that the mod loads, in the slot of K that was requested last: the second arrival at its barrier.
  ATTNC_DEVICE void fill_columns(const At& at, int flags) {
    if constexpr (kColumnsLoad<Mod>) {
      if (kCallsScore<Mod> || flags & kStepMasked) {
        const Mod::Head head = Mod::head(args, at.b, at.h);
        auto* columns = (Mod::Col*)__cvta_shared_to_generic(shared.columns(k.slot));
        for (int i = threadIdx.x; i < kBlockN; i += 32) {
          const int kv_idx = min(at.kv_start + i, max(p.base.kv_len, 1) - 1);
          columns[i] = column<Mod>(args, head, at.b, at.h, kv_idx, float(kv_idx - at.origin), 0.f);
        }
        __syncwarp();
      }
      if (leads) ptx::mbarrier_arrive(shared.k_full(k.slot));
    }
  }

  ATTNC_DEVICE void run() {
    TileDealer dealer{p.order};
    At v_next = {0, 0, 0, 0, -1}; // the step whose V is to be requested next, if it has columns
    while (dealer.valid()) {
      const QTile tile = tile_at(p.order, dealer.index);
      dealer.advance<kProducers>();
      const int q_start = tile.q_tile * kBlockM;
      At at;
      at.b = tile.head / p.base.q_heads;
      at.h = tile.head % p.base.q_heads;
      at.kv_head = at.h / p.base.group;
      at.origin = position_origin<Mod>(q_start);
      StepWalk<Mod> walk(p.base, args, at.b, at.h, q_start, min(q_start + kBlockM, p.base.q_len));
      // V one step behind K. Q comes after both, since its slot falls free last: with the O of a tile before.
      bool begins = true;
      while (true) {
        const int flags = walk.step.flags;
        at.kv_start = walk.step.kv_start;
        request_k(at, flags);
        if (v_next.kv_start >= 0) request_v(v_next);
        if (begins) tell_work({at.b, at.h, q_start, 1});
        begins = false;
        fill_columns(at, flags);
        k.advance();
        v_next = at;
        if (flags & kStepLast) break;
        walk.advance();
      }
    }
    request_v(v_next);
    tell_work({});
    if (leads) dealer.finish();
  }
};

// ------------------------------------------------------------------------------------------------------------- storer

/// One thread, in another warp of the first warpgroup: sends the O that the consumers leave in a slot of Q on its way, and
/// then frees the slot.
struct Storer {
  const ForwardParamsSm90& p;
  Shared shared;
  RingPlace<kQStages> q;

  ATTNC_DEVICE void run() {
    while (true) {
      ptx::mbarrier_wait(shared.q_full(q.slot), q.parity);
      int work[4];
      ptx::ld_shared(work, shared.work(q.slot));
      const auto [b, h, q_start, valid] = work;
      if (!valid) break;
      ptx::mbarrier_wait(shared.out_full(q.slot), q.parity);
#pragma unroll
      for (int slab = 0; slab < slabs(kHeadDimV); ++slab)
        ptx::tma_store_4d(p.out, shared.q(q.slot) + slab * kBlockM * kRowBytes, slab * 64, q_start, h,
                          b * p.out_batch_step);
      ptx::bulk_commit_group();
      ptx::bulk_wait_read();
      ptx::mbarrier_arrive(shared.q_empty(q.slot));
      q.advance();
    }
  }
};

// ---------------------------------------------------------------------------------------------------------- consumer

struct Consumer {
  const ForwardParamsSm90& p;
  const ModArgs& args;
  Shared shared;
  int group; // which consumer warpgroup, uniform over the warp

  RingPlace<kQStages> q;
  RingPlace<kStages> k, v;

  ATTNC_DEVICE Work await_work() {
    ptx::mbarrier_wait(shared.q_full(q.slot), q.parity);
    int x[4];
    ptx::ld_shared(x, shared.work(q.slot));
    return {x[0], x[1], x[2], x[3]};
  }
  ATTNC_DEVICE Step read_step() {
    int x[2];
    ptx::ld_shared(x, shared.step(k.slot));
    return {x[0], x[1]};
  }

  /// One lane of each warp passes a slot on once the warp is done with it: frees it when the products with it are there
  /// and all lanes have read what the producer told about it, or hands over what all lanes have written.
  ATTNC_DEVICE void pass_slot(unsigned barrier, bool really = true) {
    __syncwarp();
    if (really && threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier);
  }

  /// Consumers take turns at handing products to the tensor cores, so that the softmax of one runs beside the products
  /// of another. The first turn is that of warpgroup 0.
  ATTNC_DEVICE void take_turn() {
    if (kConsumers > 1) ptx::named_barrier_sync<256>(1 + group);
  }
  ATTNC_DEVICE void pass_turn() {
    if (kConsumers > 1) ptx::named_barrier_arrive<256>(group + 1 == kConsumers ? 1 : 2 + group);
  }

  /// Turns exponents y into ones that are fit for weights. True: references have moved, O must be multiplied by
  /// `rescale`.
  ATTNC_DEVICE static bool follow_maxima(ScoreTile& x, Step step, LazyRow (&row)[2], float (&rescale)[2]) {
    const float slack = step.flags & kStepExact ? 0.f : kSlack;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int even = row[half].top, odd = __float_as_int(x[0][2 * half]);
#pragma unroll
      for (int n = 0; n < kBlockN / 8; ++n) {
        int& top = n % 2 ? odd : even;
        top = max(max(top, __float_as_int(x[n][2 * half])), __float_as_int(x[n][2 * half + 1]));
      }
      row[half].top = max(even, odd);
    }
    const bool move = __any_sync(0xffffffffu, row[0].exceeds(slack) || row[1].exceeds(slack));
    if (move) [[unlikely]] {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float y_max = negative_infinity();
#pragma unroll
        for (auto& group : x) y_max = fmaxf(y_max, fmaxf(group[2 * half], group[2 * half + 1]));
        const float fall = row[half].move(y_max, rescale[half]);
#pragma unroll
        for (auto& group : x)
#pragma unroll
          for (int e = 0; e < 2; ++e) group[2 * half + e] -= fall;
      }
    }
    return move;
  }

  /// P = 2^y in place for the column groups [Begin, End), summed up in `sum`.
  template <int Begin, int End> ATTNC_DEVICE static void to_probabilities(ScoreTile& y, float (&sum)[4]) {
#pragma unroll
    for (int n = Begin; n < End; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        y[n][e] = ptx::ex2(y[n][e]);
        sum[e] += y[n][e];
      }
  }

  /// Hands a tile's O over, in the slot of its Q, or stores it. All products with that Q are there in all warps, by the
  /// barrier of the turn taken since.
  ATTNC_DEVICE void store(const OutTile& o, LazyRow (&row)[2], const Place& place) {
    const ForwardParams& base = p.base;
    const long long row_of_head = ((long long)place.b * base.q_heads + place.h) * base.q_len;
    const float normalise[2] = {row[0].finish(), row[1].finish()};
    if constexpr (kOutInQSlot) {
      const int slot = q.slot ^ 1; // of two; `q` has gone on already
      write_rows(o, shared.q(slot), 64 * group, normalise);
      ptx::fence_proxy_async();
      pass_slot(shared.out_full(slot));
    } else {
      const int q_idx = place.q_first;
      Element* out = (Element*)base.out + place.b * base.out_stride.batch + place.h * base.out_stride.head;
      store_row<0>(o, out + q_idx * base.out_stride.row, normalise[0], q_idx < base.q_len);
      store_row<1>(o, out + (q_idx + 8) * base.out_stride.row, normalise[1], q_idx + 8 < base.q_len);
    }
    if (base.lse || base.row_max) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int q_idx = place.q_first + 8 * half;
        const float shift = row_shift<Mod>(args, place.head, place.row[half]);
        const float max = base.row_max ? row[half].max() + shift : 0.f;
        if (threadIdx.x % 4 == 0 && q_idx < base.q_len) {
          if (base.lse) base.lse[row_of_head + q_idx] = row[half].lse() + shift;
          if (base.row_max) base.row_max[row_of_head + q_idx] = max;
        }
      }
    }
  }

  ATTNC_DEVICE void run() {
    const int row_of_tile = 64 * group + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    const unsigned q_rows = 64 * group * kRowBytes;
    ScoreTile s;
    WeightTile weights;
    OutTile o;
    LazyRow row[2];
    Place place;
    Work work = {};                          // the tile of the last step, of which O += P V is still to be started
    Step step = {0, kStepFirst | kStepLast}; // the last step, then this one
    if (group + 1 == kConsumers) pass_turn();
#pragma unroll 1
    while (true) {
      // Start S of this step and O += P V of the last. Where there is none, S or O comes out as garbage and is not
      // used.
      const int accumulate = !(step.flags & kStepFirst);
      const bool begins = step.flags & kStepLast; // this step begins a tile
      const bool ends = begins && work.valid;     // the last one ended a tile
      Work next = work;
      if (begins) [[unlikely]] {
        if (work.valid) q.advance();
        next = await_work();
        if (next.valid) ptx::mbarrier_wait(shared.k_full(k.slot), k.parity);
      }
      take_turn();
      ptx::touch(s);
      ptx::touch(o);
      ptx::wgmma_fence();
      start_qk(s, shared.q(q.slot) + q_rows, shared.k(k.slot));
      ptx::wgmma_commit_group();
      start_pv(o, weights, shared.v(v.slot), accumulate);
      ptx::wgmma_commit_group();
      pass_turn();
      step = read_step();

      const bool has_v = work.valid;
      if (begins) [[unlikely]] {
        ptx::wgmma_wait_group<0>();
        ptx::touch(o);
        if (ends) store(o, row, place);
        if (!next.valid) break;
        work = next;
        place = Place(p.base, args, work, row_of_tile);
        row[0] = row[1] = LazyRow{};
      }

      ptx::wgmma_wait_group<1>(); // S is there
      ptx::touch(s);
      if (!kColumnsLoad<Mod>) pass_slot(shared.k_empty(k.slot));
      if (kQStages == 1) pass_slot(shared.q_empty(0), step.flags & kStepLast);
      to_powers_of_two(s, p.base, args, place, step,
                       (const Mod::Col*)__cvta_shared_to_generic(shared.columns(k.slot)), row[0].bias, row[1].bias);
      if (kColumnsLoad<Mod>) pass_slot(shared.k_empty(k.slot));
      k.advance();
      float rescale[2];
      const bool move = follow_maxima(s, step, row, rescale);

      // P = 2^y, first without O. Meanwhile the barriers of the next K and of this V are looked at: a test takes long,
      // but nothing waits for it. The branch also keeps ptxas from moving the exponentials past the wait for O.
      float sum[4] = {row[0].sum, 0.f, row[1].sum, 0.f};
      constexpr int kGroups = kBlockN / 8, kEarly = kGroups / 4;
      const bool k_ready = step.flags & kStepLast || ptx::mbarrier_test(shared.k_full(k.slot), k.parity);
      to_probabilities<0, kEarly>(s, sum);
      if (!k_ready) [[unlikely]]
        ptx::mbarrier_wait(shared.k_full(k.slot), k.parity);

      ptx::wgmma_wait_group<0>(); // O is there
      ptx::touch(o);
      pass_slot(shared.v_empty(v.slot), has_v);
      v.advance(has_v);
      if (move) [[unlikely]] {
#pragma unroll
        for (auto& fragment : o)
#pragma unroll
          for (int e = 0; e < 4; ++e) fragment[e] *= rescale[e / 2];
      }
      const bool v_ready = ptx::mbarrier_test(shared.v_full(v.slot), v.parity);
      to_probabilities<kEarly, kGroups>(s, sum);
      to_weights(weights, s);
      row[0].sum = sum[0] + sum[1];
      row[1].sum = sum[2] + sum[3];
      if (!v_ready) [[unlikely]]
        ptx::mbarrier_wait(shared.v_full(v.slot), v.parity);
    }
  }
};

ATTNC_DEVICE void initialise(const ForwardParamsSm90& p, Shared shared) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < kQStages; ++i) {
      ptx::mbarrier_init(shared.q_full(i), 1);
      ptx::mbarrier_init(shared.q_empty(i), kOutInQSlot ? 1 : kWarps);
      ptx::mbarrier_init(shared.out_full(i), kWarps);
    }
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(shared.k_full(i), kColumnsLoad<Mod> ? 2 : 1);
      ptx::mbarrier_init(shared.k_empty(i), kWarps);
      ptx::mbarrier_init(shared.v_full(i), 1);
      ptx::mbarrier_init(shared.v_empty(i), kWarps);
    }
    ptx::fence_mbarrier_init();
    ptx::prefetch_tensor_map(p.q);
    ptx::prefetch_tensor_map(p.k);
    ptx::prefetch_tensor_map(p.v);
    ptx::prefetch_tensor_map(p.out);
  }
  __syncthreads();
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_forward(const __grid_constant__ ForwardParamsSm90 p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  // NOTE: through a shuffle, since the compiler would otherwise form the address anew, at 50 cycles, for every use.
  const Shared shared{__shfl_sync(0xffffffffu, ptx::shared_address(dynamic_shared), 0)};
  initialise(p, shared);

  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  if (group == 0) {
    ptx::setmaxnreg_dec<kProducerRegisters>();
    // NOTE: told apart by a number that ptxas knows to be the same in a warp. Without that the state of producer and
    // storer is in thread registers, of which there are too few; with it around the consumers, too, C7514.
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    if (warp == 0) {
      if (threadIdx.x < kProducers) Producer{p, args, shared}.run();
    } else if (kOutInQSlot && warp == 1) {
      if (threadIdx.x == 32) Storer{p, shared}.run();
    }
  } else {
    ptx::setmaxnreg_inc<kConsumerRegisters>();
    Consumer{p, args, shared, group - 1}.run();
  }
}

} // namespace attnc
