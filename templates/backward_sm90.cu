// Backward attention with wgmma and TMA, for sm_90a: dK and dV, and sums of dQ.
//
//   P = exp(mod(scale Q K^T) - lse),  G = P (dO V^T - delta),  dS = scale mod'(scale Q K^T) G
//   dV = P^T dO,  dK = dS^T Q,  dQ = dS K
//
// After FlashAttention-3's backward pass (Shah et al., arXiv:2407.08608). A CTA owns kBlockN = 128 rows of K and V,
// which stay in shared memory. It walks Q in steps of kBlockM rows, for all query heads of its KV head (and for all
// batches if K and V are broadcast), so dK and dV are summed in registers. Two consumer warpgroups own 64 of the rows
// each. S^T = K Q^T and dP^T = V dO^T have their rows along KV, so the registers of P^T and dS^T are already the A
// operands of dV and dK. dS also goes to shared memory, because dQ needs the dS of both consumers. dQ is added to fp32
// sums in global memory.
//
//   a consumer's loop            tensor cores, in this order          other units
//   dS(j-1) from dP(j-1)         dV += P(j-1) dO(j-1)                 first quarter of dS, or all
//   S(j), once registers allow   S(j)                                 the rest of dS, to shared memory
//   dK, dQ of j-1                dK += dS(j-1) Q(j-1), dQ(j-1)        first quarter of P(j)
//   dP(j)                        dP(j)                                dQ(j-1) to shared memory, the rest of P(j)
//
// So products are in flight nearly all the time; each consumer waits for the other's dS once per step. dQ and dP share
// registers. There is no prologue: the first round computes garbage for the step before and does not use it, because
// ptxas gives up on wgmma in flight whose accumulators are defined in two places.
//
//   role          threads                        registers   what
//   producer      warp 0                         24 or 40    walks steps; issues loads of Q, dO; fills table of rows
//   storer i      a thread of warp 1, 2          24 or 40    adds dQ of consumer i to the sums, by bulk copies
//   consumer i    a warpgroup, 64 rows of K, V   240 or 232  products, mod, gradients
//
//   shared memory   bytes                                      lifetime
//   KPart, VPart    kBlockN rows of K, of V                    whole kernel
//   QRing           kQStages tiles of kBlockM x kHeadDimQk     a slot: until dK of its step is complete
//   ORing           kStages tiles of kBlockM x kHeadDimV, dO   a slot: until dV of its step is complete
//   SRing           2 tiles of kBlockN x kBlockM, dS^T         a slot: until dQ of its step is complete
//   DqPart          kBlockM x kHeadDimQk of fp32               a half: until the bulk copy has read it
//   OwnPlace        where the rows of K and V lie              whole kernel
//   Turns           if kTakesTurns, 8 numbers                  until dQ of the step is added
//   Rows            kQStages RowTables                         as the slot of Q
//   control words   messages and barriers
//
//   barrier           completed by                                       waited for by
//   kv_full           producer: OwnPlace written, K and V requested;     consumers
//                     their bytes
//   q.full            producer: Q requested, message and rows written;   consumers
//                     its bytes
//   q.empty           consumers: dK of the step complete                 producer
//   o.full            producer: dO requested; its bytes                  consumers
//   o.empty           consumers: dV of the step complete                 producer
//   s.full            consumers: dS written                              consumers
//   RowsCleared       ragged batches: consumer i has cleared rows        consumer i
//   dq_full[i]        consumer i: dQ and message written                 storer i
//   dq_empty[i]       storer i: the bulk copy has read dQ                consumer i
//
// SRing needs no empty barrier: a consumer that writes dS(j) has seen s.full of j - 1, at which the other consumer
// arrived after its dQ(j-2).
//
// algo/backward_parts_sm90.cuh has the tiles, the rings of Q and dO, and their producer; algo/backward_sm90.cuh has a
// consumer's products; algo/backward_rows_sm90.cuh has the storer. Messages with dQ: its tile of Q (< 0: no dQ), and
// whether it is the last one.
//
// If kSumsDiagonals, consumers also add up dS along diagonals, after its rounding for dQ and dK, and computed from
// rounded P: the sums include these rounding errors. They are the gradient of score_mod's result if d_score() returns
// that unchanged (src/analysis/gradient_access.h); backward_diagonals.cu turns them into gradients of captures.
//
// With dropout (algo/drops.cuh) weights of dV are 0 where it drops, and so is dP; the rates of dS are those of before.
//
// The host provides: tensor maps; with kTakesTurns turns zeroed, otherwise d_q_sums zeroed; diagonals zeroed; grid kv
// tiles * kv_heads * kv_batch, 384 threads, kSharedBytes of dynamic shared memory. d_k and d_v have 16-byte aligned
// rows. Runs after backward_delta.cu and before backward_finish_sm90.cu.
//
// Config: kBlockN = 128, kWarps = 8; kBlockM = 128 up to head dim 64, or 64; kQStages = 3, kStages = 2; kSumsDiagonals.
// With kSumsDiagonals d_k and d_v may be null: then they are not stored.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/backward_rows_sm90.cuh"
#include "algo/diagonal_sums.cuh"
#include "ptx/red.cuh"

namespace attnc::sm90 {

// Whether a score takes many registers, or much time, while products run: then dS is completed before S of the next
// step.
constexpr bool kTight = kRatesApart || kReadsRows || Mod::Exponents::kIsLinear;
// Whether delta is read at its use. With delta in registers, compilers from 13.3 on run out of them and serialise
// wgmma.
constexpr bool kLateDelta = kTight || (kBlockM == 64 && __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1303);
// The same of biases, next to what score() takes.
constexpr bool kLateBias = (Mod::Exponents::kCallsScore && kHeadDimQk > 64) || kDrops<Mod>;
using Memory = SharedMemory<KPart, VPart, QRing::Slots, ORing::Slots, SRing::Slots, DqPart<DqSums>, QRing::Control,
                            ORing::Control, SRing::Control, KvFull, DqMessage, DqFull, DqEmpty, OwnPlace, Turns, Rows>;
static_assert(Memory::kBytes == kSharedBytes, "the host asks for another size: src/plan");

// ---------------------------------------------------------------------------------------------------------- consumer

struct Consumer : RowConsumerParts<Consumer, Memory, kTight> {
  static_assert(!kSumsDiagonals || kSplit == 1, "sums take dS when it is complete");
  static_assert(!kHasOutputGradients<Mod> || kSplit == 1, "outputs give to all weights at once");

  /// Adds a step's dS to the sums along diagonals. It begins at row `q_start` of Q and `kv_row`, the warp's first one
  /// of KV.
  ATTNC_DEVICE void add_diagonals(const PackedFragment<Element, 1, kBlockM>& d_s, const KvPlace<Mod>& place,
                                  int q_start, int kv_row, bool really) const {
    const ForwardParams& f = p.base.forward;
    const int count = f.q_len + f.kv_len, first = f.kv_len - 1 + q_start - kv_row;
    float* const sums = p.base.diagonals + (long long)(place.b * f.q_heads + place.h) * count;
    const unsigned limit = really ? count : 0;
#pragma unroll
    for (int part = 0; part < kBlockM / 64; ++part)
      sum_diagonals(d_s, part, [&](int d, float sum) {
        const int i = first + 64 * part + d;
        if (unsigned(i) < limit) ptx::red_add(sums + i, sum);
      });
  }

  ATTNC_DEVICE void run() {
    ptx::mbarrier_wait(Barriers<Memory, KvFull>{shared}[0], 0);
    const KvTilePlace tile = own_place();
    const ForwardParams& f = forward_params_of<Mod>(p.base, args, tile.b);
    const int row_of_tile = 64 * group + threadIdx.x / 32 % 4 * 16 + Scores::row(0);
    const bool tail = tile.start + kBlockN > f.kv_len;
    Fragment<1, KTile::kColumns> d_k;
    Fragment<1, VTile::kColumns> d_v;
    Scores s, d_p;
    Weights weights;
    Gradients d_s;
    d_k.fill(0.f);
    d_v.fill(0.f);
    KvPlace<Mod> place;
    Step step = {0, 0};
    if constexpr (kHasOutputGradients<Mod>) weights = {}; // outputs give nothing to the step before the first
    DeltaOf<Table, kLateDelta> delta;                     // of the last step
    bool has_older = false;                               // steps before the last one
    int last_tile = -1;                                   // of q, for the step whose dQ comes next
    table_of<Memory>(shared, 0).load_delta(delta);        // meaningless yet, but its address must be one
    if (tail) clear_kv_tail(k_tile(), f.kv_len - tile.start, group);
    int first_slot = 0; // ragged batch: the sequence's first slot of tiles of Q
    if constexpr (kIsRagged<Mod>) first_slot = q_slot_of<Mod, kBlockM>(p.base.forward, args, tile.b, 0);
#pragma unroll 1
    while (true) {
      // In flight: dP and dV of the last step.
      // NOTE: not differentiate(), with which ptxas of 13.5 chooses other registers.
      const bool has_last = last_tile >= 0;
      const bool last_masked = tail || step.flags & kStepMasked;
      DqSums::Part d_q;
      wgmma::wait<1>(d_p); // dP is complete
      if constexpr (kHasOutputGradients<Mod>) {
        const Table last = table_of<Memory>(shared, q.slot_before());
        find_gradients<0, kGroups>(d_p, weights, d_s,
                                   DeltaOfOutputs{delta, weights.weights, f, args, place, last, step});
        if (last_masked) drop_dead<0, kGroups>(d_s, weights.rates());
      } else if (last_masked) {
        find_gradients<0, kFirst>(d_p, weights, d_s, delta);
        drop_dead<0, kFirst>(d_s, weights.rates());
      } else {
        find_gradients<0, kFirst>(d_p, weights, d_s, delta);
      }
      wgmma::wait<0>(d_v); // dV is complete
      o.release_before(has_last);
      q.wait();
      int message[4];
      q.read_message(message);
      clear_tail(q.tile(), message[1], group);
      const Table table = table_of<Memory>(shared, q.slot);
      const auto bias = table.template bias<0, kEarly, kLateBias>();
      if constexpr (kSplit == 1) write_d_s(d_s), commit_d_s();
      start_scores(s); // of the next step; garbage after the last one
      if constexpr (kSumsDiagonals)
        add_diagonals(d_s, place, step.start, tile.start + row_of_tile - Scores::row(0), has_last);
      if (last_masked) {
        find_gradients<kFirst, kGroups>(d_p, weights, d_s, delta);
        drop_dead<kFirst, kGroups>(d_s, weights.rates());
      } else {
        find_gradients<kFirst, kGroups>(d_p, weights, d_s, delta);
      }
      start_d_k_and_d_q(d_k, d_q, d_s, has_older);

      const bool ends = message[2] < 0;
      if (!ends && (message[2] != place.b || message[3] != place.h || !has_last)) [[unlikely]]
        place = KvPlace<Mod>(f, args, message[2], message[3], tile.start, row_of_tile);
      step = {message[0], message[1]};
      const bool masked = tail || step.flags & kStepHasDead;
      wgmma::wait<2>(s); // S is complete
      const bool small = are_small(place, s);
      if (Mod::Exponents::kCallsScore && ends)
        [[unlikely]];
      else
        weigh<0, kEarly>(s, weights, place, table, bias, step, masked, small, f);
      if constexpr (kDrops<Mod>) drop_weights<0, kEarly>(weights, place, step);

      wgmma::wait<0>(d_k, d_q); // dK and dQ of the last step are complete
      const auto late_bias = table.template bias<kEarly, kGroups, kLateBias>();
      q.release_before(has_last);
      s_ring.advance();
      write_d_q(d_q, last_tile, ends);
      if (ends) break;
      o.wait();
      clear_tail(o.tile(), step.flags, group);
      start_d_p(d_p);
      weigh<kEarly, kGroups>(s, weights, place, table, late_bias, step, masked, small, f);
      if constexpr (kDrops<Mod>) drop_weights<kEarly, kGroups>(weights, place, step);
      commit_d_q(has_last);
      table.load_delta(delta);
      start_d_v(d_v, weights, has_last);
      if constexpr (kIsRagged<Mod>)
        last_tile = place.h * q_tiles_of<Mod, kBlockM>(f) + first_slot + step.start / kBlockM;
      else
        last_tile = head_tile_of<Mod, kBlockM>(f, args, place.b, place.h, step.start);
      q.advance();
      o.advance();
      has_older = has_last;
    }
    commit_d_q(true);
    if (last_tile < 0) {
      d_k.fill(0.f);
      d_v.fill(0.f);
    }
    if (kSumsDiagonals && !p.base.d_k) return;
    const KvTilePlace to = own_place();
    const BackwardParams& base = params_of<Mod>(p.base, args, to.b);
    store_by<kHeadDimQk>(v_tile(), group, d_k, f.scale, base.d_k, base.d_k_stride, to,
                         with_padding<Mod>(p.base.forward, base.forward).kv_len);
    store_by<kHeadDimV>(v_tile(), group, d_v, 1.f, base.d_v, base.d_v_stride, to,
                        with_padding<Mod>(p.base.forward, base.forward).kv_len);
  }
};

extern "C" __global__ void __launch_bounds__(threads_of(kWarps), 1)
    attnc_backward(const __grid_constant__ BackwardParamsSm90 p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  const unsigned shared = shared_base(dynamic_shared);
  if (!begin<Memory>(shared, p, args)) return;
  run_roles<kProducerRegisters, kConsumerRegisters>(
      [&](int warp) {
        if (warp == 0)
          Producer<Memory>{p, args, shared}.run();
        else if (warp < 3 && threadIdx.x % 32 == 0)
          DqStorer<Memory>{p, args, shared, warp - 1}.run();
      },
      [&](int group) {
        Consumer{p, args, shared, group}.run();
      });
}

} // namespace attnc::sm90
