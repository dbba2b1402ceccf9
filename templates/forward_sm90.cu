// Forward attention with wgmma and TMA, for sm_90a.
//
//   S = scale Q K^T,  P = softmax(mod(S)),  O = P V,  lse = log sum exp mod(S)
//
// After FlashAttention-3 (Shah et al., arXiv:2407.08608). A CTA stays and takes one tile of kBlockM rows of Q after
// another. Its first warpgroup, the producer, has one busy thread: it decides which tile and which KV steps come next
// and requests them from the copy engine. The other warpgroups, the consumers, own 64 rows each and follow the steps:
//
//   producer      K(i+1) V(i) K(i+2) V(i+1) ...                     as slots of the rings fall free
//   consumer 0    [S(i+1) = Q K(i+1), O += P(i) V(i)] softmax(i+1) [...]
//   consumer 1    softmax(i+1)                        [...]         takes turns with consumer 0 at the tensor cores
//
// S of the next step, which may be the first of the next tile, runs on the tensor cores ahead of O += P V; so a
// warpgroup has products under way during its softmax, and during the stores at the end of a tile.
//
//   shared memory   bytes                                         lifetime
//   q_ring          kQStages tile_bytes(kBlockM, kHeadDimQk)      a slot: one tile of Q rows
//   k_ring          kStages tile_bytes(kBlockN, kHeadDimQk)       a slot: until S of its step is there
//   v_ring          kStages tile_bytes(kBlockN, kHeadDimV)        a slot: until P V of its step is there
//   Control         sizeof(Control) <= 512                        barriers, and what the producer tells the consumers
//
// The host provides: tensor maps, the tile order and its counters (params_sm90.cuh); grid min(tiles, SMs), 128 + 32
// kWarps threads, dynamic shared memory as above. out has 16-byte aligned rows; q_len, kv_len >= 1. Config: kBlockM =
// 16 kWarps, kWarps 8 or 12, kStages, kQStages; with lists kBlockN divides the block. Seams: head, row, col, score,
// mask, bounds (step_walk.cuh).
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/lazy_softmax.cuh"
#include "algo/step_walk.cuh"
#include "algo/tile_order.cuh"
#include "params_sm90.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/named_barrier.cuh"
#include "ptx/setmaxnreg.cuh"
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

constexpr int kQBytes = tile_bytes(kBlockM, kHeadDimQk);
constexpr int kKBytes = tile_bytes(kBlockN, kHeadDimQk);
constexpr int kVBytes = tile_bytes(kBlockN, kHeadDimV);

/// What the producer tells the consumers about a tile of Q rows.
struct Work {
  int b, h, q_start, valid; // not valid: no more work
};

struct Control {
  Work work[kQStages];
  Step step[kStages];
  unsigned long long q_full[kQStages], q_empty[kQStages];
  unsigned long long k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
};

/// A place in a ring of `Stages` slots: which slot, and the parity of its barriers' phase.
template <int Stages> struct RingPlace {
  int slot = 0;
  unsigned parity = 0;
  ATTNC_DEVICE void advance() {
    if (++slot == Stages) {
      slot = 0;
      parity ^= 1;
    }
  }
};

/// Shared memory, and the addresses of its parts.
struct Shared {
  unsigned char* base;
  ATTNC_DEVICE Control& control() const {
    return *(Control*)(base + kQStages * kQBytes + kStages * (kKBytes + kVBytes));
  }
  ATTNC_DEVICE unsigned q(int slot) const { return ptx::shared_address(base) + slot * kQBytes; }
  ATTNC_DEVICE unsigned k(int slot) const { return q(kQStages) + slot * kKBytes; }
  ATTNC_DEVICE unsigned v(int slot) const { return k(kStages) + slot * kVBytes; }
  ATTNC_DEVICE unsigned barrier(const unsigned long long& b) const { return ptx::shared_address(&b); }
};

// ---------------------------------------------------------------------------------------------------------- producer

struct Producer {
  const ForwardParamsSm90& p;
  const ModArgs& args;
  Shared shared;
  RingPlace<kQStages> q;
  RingPlace<kStages> k, v;

  ATTNC_DEVICE void tell_work(Work work) {
    Control& control = shared.control();
    ptx::mbarrier_wait(shared.barrier(control.q_empty[q.slot]), q.parity ^ 1);
    control.work[q.slot] = work;
    const unsigned full = shared.barrier(control.q_full[q.slot]);
    if (work.valid) {
      ptx::mbarrier_arrive_expect_tx(full, kQBytes);
      request_tile<kBlockM, kHeadDimQk>(shared.q(q.slot), p.q, full, work.q_start, work.h, work.b * p.q_batch_step);
    } else {
      ptx::mbarrier_arrive(full);
    }
    q.advance();
  }

  ATTNC_DEVICE void request_k(Step step, int kv_head, int b) {
    Control& control = shared.control();
    ptx::mbarrier_wait(shared.barrier(control.k_empty[k.slot]), k.parity ^ 1);
    control.step[k.slot] = step;
    const unsigned full = shared.barrier(control.k_full[k.slot]);
    ptx::mbarrier_arrive_expect_tx(full, kKBytes);
    request_tile<kBlockN, kHeadDimQk>(shared.k(k.slot), p.k, full, step.kv_start, kv_head, b * p.k_batch_step);
    k.advance();
  }

  ATTNC_DEVICE void request_v(int kv_start, int kv_head, int b) {
    Control& control = shared.control();
    ptx::mbarrier_wait(shared.barrier(control.v_empty[v.slot]), v.parity ^ 1);
    const unsigned full = shared.barrier(control.v_full[v.slot]);
    ptx::mbarrier_arrive_expect_tx(full, kVBytes);
    request_tile<kBlockN, kHeadDimV>(shared.v(v.slot), p.v, full, kv_start, kv_head, b * p.v_batch_step);
    v.advance();
  }

  ATTNC_DEVICE void run() {
    TileDealer dealer{p.order};
    while (dealer.valid()) {
      const QTile tile = tile_at(p.order, dealer.index);
      dealer.advance();
      const int b = tile.head / p.base.q_heads, h = tile.head % p.base.q_heads, kv_head = h / p.base.group;
      const int q_start = tile.q_tile * kBlockM;
      StepWalk<Mod> walk(p.base, args, b, h, q_start, min(q_start + kBlockM, p.base.q_len));
      tell_work({b, h, q_start, 1});
      Step step = walk.step;
      request_k(step, kv_head, b);
      while (!(step.flags & kStepLast)) { // V one step behind K
        const int kv_start = step.kv_start;
        walk.advance();
        step = walk.step;
        request_k(step, kv_head, b);
        request_v(kv_start, kv_head, b);
      }
      request_v(step.kv_start, kv_head, b);
    }
    tell_work({});
    dealer.finish();
  }
};

// ---------------------------------------------------------------------------------------------------------- consumer

/// A thread's place in a tile: rows q_first and q_first + 8.
struct Place {
  int b, h, q_first;
  Mod::Head head;
  Mod::Row row[2];

  Place() = default;
  ATTNC_DEVICE Place(const ForwardParams& p, const ModArgs& args, Work work, int row_of_tile)
      : b(work.b), h(work.h), q_first(work.q_start + row_of_tile), head(Mod::head(args, work.b, work.h)) {
    const float q_float = float(q_first);
#pragma unroll
    for (int half = 0; half < 2; ++half) row[half] = Mod::row(args, head, b, h, q_idx(p, half), q_float + 8.f * half);
  }

  ATTNC_DEVICE int q_idx(const ForwardParams& p, int half) const { return min(q_first + 8 * half, p.q_len - 1); }
};

/// Turns products q k^T into scores: score_mod, then -inf where mask_mod or the end of KV says so. On exit x is the
/// natural score if the mod has a score_mod (or `premultiply`), else still the product.
ATTNC_DEVICE void apply_mod(ScoreTile& x, const ForwardParams& p, const ModArgs& args, const Place& place, Step step,
                            bool premultiply) {
  const int kv_first = step.kv_start + threadIdx.x % 4 * 2;
  const float kv_float = float(kv_first);
  const auto at_each_score = [&](auto&& function) {
#pragma unroll
    for (int n = 0; n < kBlockN / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int kv_idx = min(kv_first + 8 * n + e, p.kv_len - 1);
        const Mod::Col col = Mod::col(args, place.head, place.b, place.h, kv_idx, kv_float + float(8 * n + e));
#pragma unroll
        for (int half = 0; half < 2; ++half)
          function(x[n][2 * half + e], place.row[half], col, Coord{place.b, place.h, place.q_idx(p, half), kv_idx});
      }
  };
  if constexpr (Mod::kHasScoreMod) {
    at_each_score([&](float& s, const Mod::Row& row, const Mod::Col& col, Coord at) {
      s = Mod::score(args, place.head, row, col, at, s * p.scale); // SEAM(score)
    });
  } else if (premultiply) {
#pragma unroll
    for (auto& group : x)
#pragma unroll
      for (float& s : group) s *= p.scale;
  }
  if (Mod::kHasMaskMod && step.flags & kStepMasked) {
    at_each_score([&](float& s, const Mod::Row& row, const Mod::Col& col, Coord at) {
      if (!Mod::mask(args, place.head, row, col, at)) s = negative_infinity(); // SEAM(mask)
    });
  }
  if (step.flags & kStepTail) {
#pragma unroll
    for (int n = 0; n < kBlockN / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (kv_first + 8 * n + e % 2 >= p.kv_len) x[n][e] = negative_infinity();
  }
}

struct Consumer {
  const ForwardParamsSm90& p;
  const ModArgs& args;
  Shared shared;
  int group;        // which consumer warpgroup, uniform over the warp
  float factor;     // see online_softmax.cuh
  float natural;    // x times this is the natural score
  bool premultiply; // see apply_mod

  RingPlace<kQStages> q;
  RingPlace<kStages> k, v;

  ATTNC_DEVICE Work await_work() {
    ptx::mbarrier_wait(shared.barrier(shared.control().q_full[q.slot]), q.parity);
    return shared.control().work[q.slot];
  }
  ATTNC_DEVICE Step await_k() {
    ptx::mbarrier_wait(shared.barrier(shared.control().k_full[k.slot]), k.parity);
    return shared.control().step[k.slot];
  }
  ATTNC_DEVICE void await_v() { ptx::mbarrier_wait(shared.barrier(shared.control().v_full[v.slot]), v.parity); }

  /// One lane of each warp frees a slot once the warp's products with it are there.
  ATTNC_DEVICE void free_slot(const unsigned long long& empty) {
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(shared.barrier(empty));
  }

  /// Consumers take turns at handing products to the tensor cores, so that the softmax of one runs beside the products
  /// of another. The first turn is that of warpgroup 0.
  ATTNC_DEVICE void take_turn() {
    if (kConsumers > 1) ptx::named_barrier_sync<256>(1 + group);
  }
  ATTNC_DEVICE void pass_turn() {
    if (kConsumers > 1) ptx::named_barrier_arrive<256>(group + 1 == kConsumers ? 1 : 2 + group);
  }

  /// P = 2^(factor x + bias) in place; row sums and maxima brought up to date. True: O must be multiplied by `rescale`.
  ATTNC_DEVICE bool softmax_step(ScoreTile& x, LazyRow (&row)[2], float (&rescale)[2]) {
    bool move = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float tile_max = fmaxf(x[0][2 * half], x[0][2 * half + 1]);
#pragma unroll
      for (int n = 1; n < kBlockN / 8; ++n) tile_max = fmaxf(tile_max, fmaxf(x[n][2 * half], x[n][2 * half + 1]));
      move |= row[half].see(tile_max, factor);
    }
    move = __any_sync(0xffffffffu, move);
    if (move) {
#pragma unroll
      for (int half = 0; half < 2; ++half) rescale[half] = row[half].move(factor);
    }
    const float bias[2] = {row[0].bias(factor), row[1].bias(factor)};
#pragma unroll
    for (auto& group : x)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        group[e] = ptx::ex2(group[e] * factor + bias[e / 2]);
        row[e / 2].sum += group[e];
      }
    return move;
  }

  ATTNC_DEVICE void store(const OutTile& o, LazyRow (&row)[2], const Place& place) {
    const ForwardParams& base = p.base;
    const long long row_of_head = ((long long)place.b * base.q_heads + place.h) * base.q_len;
    Element* out = (Element*)base.out + place.b * base.out_stride.batch + place.h * base.out_stride.head;
    const float normalise[2] = {row[0].finish(), row[1].finish()};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int q_idx = place.q_first + 8 * half;
      if (threadIdx.x % 4 == 0 && q_idx < base.q_len) {
        if (base.lse) base.lse[row_of_head + q_idx] = row[half].lse(factor);
        if (base.row_max) base.row_max[row_of_head + q_idx] = row[half].max * natural;
      }
    }
    const int q_idx = place.q_first;
    store_row<0>(o, out + q_idx * base.out_stride.row, normalise[0], q_idx < base.q_len);
    store_row<1>(o, out + (q_idx + 8) * base.out_stride.row, normalise[1], q_idx + 8 < base.q_len);
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
      if (begins) next = await_work();
      if (next.valid) step = await_k();
      take_turn();
      ptx::touch(s);
      ptx::touch(o);
      ptx::wgmma_fence();
      start_qk(s, shared.q(q.slot) + q_rows, shared.k(k.slot));
      ptx::wgmma_commit_group();
      if (work.valid) await_v();
      ptx::wgmma_fence();
      start_pv(o, weights, shared.v(v.slot), accumulate);
      ptx::wgmma_commit_group();
      pass_turn();

      if (begins) {
        ptx::wgmma_wait_group<0>();
        ptx::touch(o);
        if (ends) {
          free_slot(shared.control().v_empty[v.slot]);
          v.advance();
          store(o, row, place);
        }
        if (!next.valid) break;
        work = next;
        place = Place(p.base, args, work, row_of_tile);
        row[0] = row[1] = LazyRow{};
      }

      ptx::wgmma_wait_group<1>(); // S is there
      ptx::touch(s);
      free_slot(shared.control().k_empty[k.slot]);
      k.advance();
      if (step.flags & kStepLast) {
        free_slot(shared.control().q_empty[q.slot]);
        q.advance();
      }
      apply_mod(s, p.base, args, place, step, premultiply);
      float rescale[2];
      const bool move = softmax_step(s, row, rescale); // P = exp(S - reference)

      ptx::wgmma_wait_group<0>(); // O is there
      ptx::touch(o);
      if (!begins) {
        free_slot(shared.control().v_empty[v.slot]);
        v.advance();
      }
      to_weights(weights, s);
      if (move) {
#pragma unroll
        for (auto& fragment : o)
#pragma unroll
          for (int e = 0; e < 4; ++e) fragment[e] *= rescale[e / 2];
      }
    }
  }
};

ATTNC_DEVICE void initialise(const ForwardParamsSm90& p, Shared shared) {
  if (threadIdx.x == 0) {
    Control& control = shared.control();
    for (int i = 0; i < kQStages; ++i) {
      ptx::mbarrier_init(shared.barrier(control.q_full[i]), 1);
      ptx::mbarrier_init(shared.barrier(control.q_empty[i]), kWarps);
    }
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(shared.barrier(control.k_full[i]), 1);
      ptx::mbarrier_init(shared.barrier(control.k_empty[i]), kWarps);
      ptx::mbarrier_init(shared.barrier(control.v_full[i]), 1);
      ptx::mbarrier_init(shared.barrier(control.v_empty[i]), kWarps);
    }
    ptx::fence_mbarrier_init();
    ptx::prefetch_tensor_map(p.q);
    ptx::prefetch_tensor_map(p.k);
    ptx::prefetch_tensor_map(p.v);
  }
  __syncthreads();
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_forward(const __grid_constant__ ForwardParamsSm90 p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  const Shared shared{dynamic_shared};
  initialise(p, shared);

  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  if (group == 0) {
    ptx::setmaxnreg_dec<kProducerRegisters>();
    if (threadIdx.x == 0) Producer{p, args, shared}.run();
  } else {
    ptx::setmaxnreg_inc<kConsumerRegisters>();
    // x is a score in natural units if something comes between the product and the softmax, else the product itself; a
    // scale that is not positive would turn the maximum into a minimum, so then the product is multiplied first.
    const bool premultiply = Mod::kHasScoreMod || !(p.base.scale > 0.f);
    const float natural = premultiply ? 1.f : p.base.scale;
    Consumer{p, args, shared, group - 1, natural * kLog2e, natural, premultiply}.run();
  }
}

} // namespace attnc
