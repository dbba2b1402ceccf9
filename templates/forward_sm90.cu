// Forward attention with wgmma and TMA, for sm_90a.
//
//   S = scale Q K^T,  P = softmax(mod(S)),  O = P V,  lse = log sum exp mod(S)
//
// After FlashAttention-3 (Shah et al., arXiv:2407.08608). A persistent CTA takes one tile of kBlockM rows of Q after
// another. In its first warpgroup, one warp is the producer: it decides which tile and which KV steps come next, issues
// their TMA loads, and computes what the mod loads for a step's columns. Another warp is the storer, which writes
// finished tiles of O. The other warpgroups are the consumers, which own 64 rows each:
//
//   producer      K(i+1) V(i) K(i+2) V(i+1) ...                     as slots of the rings are released
//   consumer 0    [S(i+1) = Q K(i+1), O += P(i) V(i)] softmax(i+1) [...]
//   consumer 1    softmax(i+1)                        [...]         takes turns with consumer 0 at the tensor cores,
//                                                                 if kPingPong
//
// Q, K and V may be E4M3 with factors (kFp8, algo/scaled.cuh). Weights are then E4M3 as well. Products of 8 bits want V
// with its rows contiguous, so two more warps transpose each tile of V on its way: tile/transposed_v.cuh. Consumers of
// E4M3 add to O in fp32, and have no product in flight during their softmax: algo/consumer_e4m3_sm90.cuh.
//
// With 16 bits, the tensor cores run S of the next step, possibly the first of the next tile, ahead of O += P V. So a
// warpgroup has products in flight during its softmax, and during the stores at the end of a tile.
//
//   role          threads                      registers   what
//   producer      one thread, or a warp      56, 40 or 32  tile scheduler; walks steps; issues TMA loads of Q, K, V;
//                 if it fills columns                       computes those that the mod loads; loads factors of rows
//   storer        one thread of another      56, 40 or 32  issues TMA stores of O; with kCopiesRows copies the rows of
//                 warp; with kCopiesRows                    tiles that are partial
//                 the warp
//   V requester   with kOrdersV one thread   the same    issues TMA loads of V, whose pages are smaller than its tile
//                 of a third warp
//   transposers   two warps, with kFp8       the same    transpose V
//   keeper        with kSharesSteps a warp   the same    keeps the CTA until no other one arrives at its barriers
//   consumer i    a warpgroup, 64 rows    232 to 152       products, mod, softmax
//
//   shared memory   bytes                                        lifetime
//   QRing           kQStages tiles of kBlockM x kHeadDimQk       a slot: a tile of Q rows; with two slots, then
//                   (or x kHeadDimV, if O takes more room)         its rows of O on their way out
//   KRing           kStages tiles of kBlockN x kHeadDimQk        a slot: until S of its step is complete
//   VRing           kStages tiles of kBlockN x kHeadDimV         a slot: until P V of its step is complete
//   LoadedVRing     with kFp8: kStages tiles of V as loaded      a slot: until it is transposed
//   Columns         kStages kBlockN sizeof(Mod::Col)             if the mod loads by column; as the slot of K
//   RowScales       with kRowScales: 8 kStages kBlockN           as the slot of K, until the step's P is formed
//   control words   messages and barriers of the rings, OutFull
//
//   barrier           completed by                                         waited for by
//   q.full            producer: Q requested, message written; its bytes    consumers, storer
//   q.empty           storer: O has been read; with one slot of Q the      producer
//                     consumers, after S of the tile's last step
//   k.full            producer: K requested, message written; its bytes;   consumers
//                     with Columns or RowScales also: these written
//   k.empty           consumers, with kSharesSteps of all CTAs of the      producer
//                     cluster: S complete, columns read
//   v.full, v.empty   producer (or V requester): V requested, its bytes;   consumers, producer
//                     consumers: O                                         (or V requester)
//                     with kFp8 transposers: V transposed                  consumers, transposers
//   v_orders.full     producer: message written                            V requester
//   v_orders.empty    V requester: message read                            producer
//   loaded_v.full     producer: V requested, message written; its bytes    transposers
//   loaded_v.empty    transposers: V transposed                            producer
//   out_full          consumers: rows of O written to the slot of Q        storer
//   SchedulerBarriers consumer 0, 1.. gets its turn at the tensor cores;   consumer 0, 1..
//                     without turns, its warps have written V or O
//
// With kSharesSteps the CTAs of a cluster walk the same steps in step: each loads a part of a tile of K or V into the
// slot of all, once consumers of all have released it. FlashAttention-3 does the same in one head.
//
// Messages: with Q the tile's b, h, first row, or that there is no more work; with K the first column and StepFlags;
// with loaded V how many of its rows live, or that there is no more work; with an order of V its first column, b, KV
// head and length, or that there is no more work.
//
// The host provides: tensor maps, the tile order and its counters (params_sm90.cuh); grid min(tiles, SMs), 128 + 32
// kWarps threads, kSharedBytes of dynamic shared memory. out has 16-byte aligned rows; q_len >= 1.
//
// Config: kBlockM = 16 kWarps, kWarps 8 or 12, kStages, kQStages 1 or 2; with lists, kBlockN divides the block. If
// kNarrowHeadDim is below kHeadDimQk, Q and K have further columns: algo/further_columns.cuh.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/consumer_e4m3_sm90.cuh"
#include "algo/consumer_parts_sm90.cuh"
#include "algo/transposer.cuh"

namespace attnc::sm90 {

// ------------------------------------------------------------------------------------------------------------- storer

/// Whether the storer is a warp, which copies the rows of a tile whose other rows belong to another sequence, or to
/// none in front of row 0: TMA would overwrite the former, and stores no box that begins there.
constexpr bool kCopiesRows = kIsRagged<Mod> || kAnchorsAtEnd;

/// One thread, in another warp of the first warpgroup, or with kCopiesRows the warp: issues the TMA stores of the O
/// that consumers leave in a slot of Q, and then releases the slot.
struct Storer {
  const ForwardParamsSm90& p;
  unsigned shared;
  Ring<Memory, QRing> q = {shared};
  Barriers<Memory, OutFull> out_full = {shared};

  ATTNC_DEVICE void run(const ModArgs& args) {
    while (true) {
      q.wait();
      int work[4];
      q.read_message(work);
      const auto [b, h, q_start, valid] = work;
      if (!valid) break;
      ptx::mbarrier_wait(out_full[q.slot], q.parity);
      const OutTile out = {q.tile().base};
      if constexpr (kCopiesRows)
        copy_or_send(args, out, b, h, q_start);
      else if (!kSharesSteps || q_start < p.base.q_len) // else the last tile of an odd number has no rows
        send(out, b, h, q_start);
      if (!kCopiesRows || threadIdx.x == 32) ptx::mbarrier_arrive(q.empty());
      q.advance();
    }
  }

  ATTNC_DEVICE void send(OutTile out, int b, int h, int row) const {
#pragma unroll
    for (int slab = 0; slab < OutTile::kSlabs; ++slab)
      ptx::tma_store_4d(p.out, out.slab(slab), slab * 64, row, h, b * p.out_batch_step);
    ptx::bulk_commit_group();
    ptx::bulk_wait_read();
  }

  /// Returns the row of `out` that is b's first, within the tensor whatever the caller's cumulative lengths are.
  ATTNC_DEVICE int first_row(const ModArgs& args, int b) const {
    if constexpr (kIsRagged<Mod>) return q_start_of<Mod>(p.base, args, b);
    return 0;
  }

  ATTNC_DEVICE void copy_or_send(const ModArgs& args, OutTile out, int b, int h, int q_start) const {
    const ForwardParams& base = params_of<Mod>(p.base, args, b);
    const int begin = max(-q_start, 0), end = min(base.q_len - q_start, kBlockM);
    if (end - begin < kBlockM)
      wgmma::copy_rows<kHeadDimV>((Element*)base.out + b * base.out_stride.batch + h * base.out_stride.head +
                                      q_start * base.out_stride.row,
                                  base.out_stride.row, out, begin, end);
    else if (threadIdx.x == 32)
      send(out, b, h, first_row(args, b) + q_start);
    __syncwarp();
  }
};

// ---------------------------------------------------------------------------------------------------------- consumer

/// A warpgroup that computes with elements E of 16 bits.
template <class E> struct Consumer : ConsumerParts {
  using Weights = PackedFragment<E, 1, kBlockN>;

  /// Zeroes the rows of V behind the sequence, where TMA has loaded whatever the tensor holds there: a weight of 0 does
  /// not undo NaN. Each warpgroup writes all of them, and so waits for no other. The scheduler barrier before the next
  /// products makes the zeros visible to its warps.
  template <class M> ATTNC_DEVICE void clear_dead_rows(const Place<1, M>& place, Step step) {
    const int live = max(kv_length<M>(p.base, args, place.head) - step.start, 0);
    const VTile tile = v.tile();
#pragma unroll
    for (int slab = 0; slab < VTile::kSlabs; ++slab)
      for (int at = live * VTile::kRowBytes + threadIdx.x % 128 * 16; at < VTile::kSlabBytes; at += 128 * 16)
        ptx::st_shared(tile.slab(slab) + at, {0, 0, 0, 0});
    ptx::fence_proxy_async();
  }

  /// Returns the variant of a tile, the same in all lanes.
  ATTNC_DEVICE int variant_of_tile(const Work& work) const {
    return int(ptx::uniform(unsigned(computed_variant<Mod>(args, work.b, work.h))));
  }

  ATTNC_DEVICE void run() {
    if (group + 1 == kConsumers) scheduler_barrier_arrive();
    if constexpr (kChooses<Mod>) {
      for (Work next = await_work(); next.valid; next = await_work())
        with_variant<Mod>(variant_of_tile(next), [&](auto m) { this->template run_tiles<decltype(m)>(); });
      if (kSharesSteps) ptx::cluster_arrive(); // all releases are made
    } else {
      run_tiles<Mod>();
    }
  }

  /// Computes tiles until there is no more work. M: the mod; if it chooses, the variant of the next tile. Then it also
  /// stops in front of a tile of another variant, whose message stays.
  template <class M> ATTNC_DEVICE void run_tiles() {
    Scores s;
    Weights weights;
    Out o;
    RowSoftmax softmax;
    Place<1, M> place;
    Work work = {};                          // the last step's tile, whose O += P V is not started yet
    Step step = {0, kStepFirst | kStepLast}; // the last step, then this one
    // NOTE: ptxas keeps registers for what may be read before it is written, through the loops of all variants.
    if (kChooses<Mod>) s.fill(0.f), o.fill(0.f), weights = {};
#pragma unroll 1
    while (true) {
      // Start S of this step and O += P V of the last one. If either does not exist, its result is garbage and unused.
      const int accumulate = !(step.flags & kStepFirst);
      const bool begins = step.flags & kStepLast; // this step begins a tile
      const bool ends = begins && work.valid;     // the last one ended a tile
      Work next = work;
      if (begins) [[unlikely]] {
        if (work.valid) q.advance();
        next = await_work();
        if constexpr (kChooses<Mod>)
          if (!next.valid || variant_of_tile(next) != M::kVariant) break;
        if (next.valid) k.wait();
        if (kSharesSteps && !next.valid) ptx::cluster_arrive(); // all releases are made
      }
      scheduler_barrier_sync();
      wgmma::touch(s);
      wgmma::touch(o);
      ptx::wgmma_fence();
      wgmma::start_gemm(s, q.tile().from_row(64 * group), transposed(k.tile()), 0); // S = Q K^T
      ptx::wgmma_commit_group();
      wgmma::start_gemm(o, weights, v.tile(), accumulate); // O += P V
      ptx::wgmma_commit_group();
      scheduler_barrier_arrive();
      StepScales none;
      step = read_step(k, none);

      const bool has_v = work.valid;
      if (begins) [[unlikely]] {
        wgmma::wait<0>(o);
        if (ends) store(o, softmax, place, 1.f);
        if (!kChooses<Mod> && !next.valid) break;
        work = next;
        const int thread = ptx::opaque(threadIdx.x); // NOTE: opaque, else values derived from it take a register
        place = Place<1, M>(p.base, args, work.b, work.h, work.q_start, (thread - 128) / 32 * 16 + thread % 32 / 4,
                            p.base.scale);
        softmax = {};
      }

      wgmma::wait<1>(s); // S is complete
      if (!M::kSharesColumns) release(k);
      if (kQStages == 1) q.release(step.flags & kStepLast);
      StepBias<typename M::Exponents, 2> bias(softmax, place);
      apply_mod(s, p.base, args, place, step, this->template columns<M>(), bias);
      if (M::kSharesColumns) release(k);
      k.advance();
      Rescaling<2> rescaling;
      if (kChooses<Mod>) rescaling = {}; // NOTE: as above
      if constexpr (kIsWeight<Mod>) {
        scores_to_weights(s);
      } else {
        follow_maxima<Input>(s, softmax, bias, place, args, is_exact(step), rescaling);
        to_exponents(s, bias, place);
      }

      // P, first without waiting for O. Meanwhile the barriers of the next K and of this V are tested: a test takes
      // long, but nothing waits for it. The branch also keeps ptxas from moving the exponentials past the wait for O.
      WeightSums<2> sums(softmax);
      constexpr int kGroups = kBlockN / 8, kEarly = kGroups / 4;
      const bool k_ready = step.flags & kStepLast || k.try_wait();
      if constexpr (!kIsWeight<Mod>) to_weights<0, kEarly>(s, sums);
      if (!k_ready) [[unlikely]]
        k.wait();

      wgmma::wait<0>(o); // O is complete
      release(v, has_v);
      v.advance(has_v);
      if (rescaling.is_due) [[unlikely]]
        o.scale_rows(rescaling.factors);
      const bool v_ready = v.try_wait();
      if constexpr (!kIsWeight<Mod>) to_weights<kEarly, kGroups>(s, sums);
      if constexpr (kHasProbMod<Mod>)
        scale_weights<Mod>(s, args, RowSite<Mod, 1, OwnColumns>{p.base, args, place, step, {}});
      weights.pack(s);
      if constexpr (kDrops<Mod>)
        drop<kHasOffsets<Mod>>(weights, place, place.first_position(args), place.kv_first(step));
      sums.store(softmax);
      if (!v_ready) [[unlikely]]
        v.wait();
      if constexpr (kHasLengths<Mod>)
        if (step.flags & kStepTail) [[unlikely]]
          clear_dead_rows(place, step);
    }
    if constexpr (kChooses<Mod>) {
      // NOTE: behind the loop. If it is left with S in flight, ptxas serialises wgmma (C7514).
      scheduler_barrier_sync();
      wgmma::touch(o);
      ptx::wgmma_fence();
      wgmma::start_gemm(o, weights, v.tile(), !(step.flags & kStepFirst)); // O += P V of the last tile
      ptx::wgmma_commit_group();
      scheduler_barrier_arrive();
      wgmma::wait<0>(o);
      release(v);
      v.advance();
      store(o, softmax, place, 1.f);
    }
  }
};

extern "C" __global__ void ATTNC_CLUSTER_DIMS __launch_bounds__(threads_of(kWarps), 1)
    attnc_forward(const __grid_constant__ Params p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  const unsigned shared = shared_base(dynamic_shared);
  initialise<Memory>(shared, [&] { ptx::prefetch_tensor_maps(p.q, p.k, p.v, p.out), prefetch_columns(p); });
  if constexpr (kSharesSteps) ptx::cluster_sync(); // barriers of all CTAs are initialised
  run_roles<kProducerRegisters, kConsumerRegisters>(
      [&](int warp) {
        if (warp == 0) {
          if (threadIdx.x < kProducers) Producer{{}, p, args, shared}.run();
          if constexpr (kRowScales) ptx::exit_thread(); // NOTE: as below
        } else if (kOutInQSlot && warp == 1) {
          if (kCopiesRows || threadIdx.x == 32) Storer{p, shared}.run(args);
        } else if (kSharesSteps && warp == 3) {
          ptx::cluster_sync();
        } else if constexpr (kOrdersV) {
          if (threadIdx.x == 64) VRequester{p, args, shared}.run();
          ptx::exit_thread(); // NOTE: as below
        } else if constexpr (kFp8) {
          if (warp >= 2) {
            Transposer<Memory, LoadedVRing, VRing, kHasLengths<Mod>>{shared, warp - 2}.run();
            ptx::exit_thread(); // NOTE: if this role joins the others, ptxas reports C7514 and serialises wgmma
          }
        }
      },
      [&](int group) ATTNC_INLINED {
        using Role = typename Choose<kFp8, ConsumerE4m3<Input>, Consumer<Input>>::Type;
        Role{{p, args, shared, group}}.run();
      });
}

} // namespace attnc::sm90
