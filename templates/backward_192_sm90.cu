// Backward attention with wgmma and TMA, for sm_90a and head dims of q and k beyond 128 and up to 192, with up to 128
// of v: latent attention's prompts and training (192 and 128). Computes dK and dV, and sums of dQ.
//
//   P = exp(mod(scale Q K^T) - lse),  G = P (dO V^T - delta),  dS = scale G, for mods that only add to a score
//   dV = P^T dO,  dK = dS^T Q,  dQ = dS K
//
// As in backward_sm90.cu, two consumer warpgroups own 64 of the CTA's 128 rows of K and V each, and dQ is added to fp32
// sums in global memory. But dK and dV take 160 of a thread's 240 registers. S, dP and dQ share 32 more, one after the
// other, and what is known of a step is read again instead of kept:
//
//   a consumer's loop            tensor cores, in this order    other units
//   S(j)                                                        dS(j-1) from dP(j-1), to shared memory
//   dK of j-1                    S(j), dK += dS(j-1) Q(j-1)
//   first piece of dQ(j-1)       dQ(j-1), 64 columns            P(j)
//   second piece                 dQ(j-1), 32 columns            first piece to shared memory
//   dP(j), dV                    dP(j), dV += P(j) dO(j)        second piece to shared memory
//
// A part of dQ is 96 columns, a slab of K and half of the middle one: two products. dK takes dS from shared memory,
// because its registers are needed for the weights of the next step. While one consumer waits, the other one's products
// run. The first round computes garbage for the step before and does not use it.
//
//   role          threads                        registers   what
//   producer      warp 0                         24          walks steps; issues loads of Q, dO; fills table of rows
//   storer i      a thread of warp 1, 2          24          adds dQ of consumer i to the sums, by bulk copies
//   consumer i    a warpgroup, 64 rows of K, V   240         products, mod, gradients
//
//   shared memory   bytes                                      lifetime
//   KPart, VPart    kBlockN rows of K, of V                    whole kernel
//   QRing           2 tiles of kBlockM x kHeadDimQk            a slot: until dK of its step is complete
//   ORing           2 tiles of kBlockM x kHeadDimV, dO         a slot: until dV of its step is complete
//   SRing           a tile of kBlockN x kBlockM, dS^T          until dQ of its step is complete
//   DqPart          kBlockM x kHeadDimQk of fp32               a half: until the bulk copy has read it
//   OwnPlace        where the rows of K and V lie              whole kernel
//   Turns           if kTakesTurns, 8 numbers                  until dQ of the step is added
//   Targets         8 messages with Q                          until dQ of the step is added
//   Rows            2 RowTables                                as the slot of Q
//   control words   messages and barriers
//
//   barrier           completed by                                       waited for by
//   kv_full           producer: OwnPlace written, K and V requested;     consumers
//                     their bytes
//   q.full            producer: Q requested, message, target and rows    consumers
//                     written; its bytes
//   q.empty           consumers: dK of the step complete                 producer
//   o.full            producer: dO requested; its bytes                  consumers
//   o.empty           consumers: dV of the step complete                 producer
//   s.full            consumers: dS written                              consumers
//   s.empty           consumers: dQ complete                             consumers
//   RowsCleared       ragged batches: consumer i has cleared rows        consumer i
//   dq_full[i]        consumer i: dQ and message written                 storer i
//   dq_empty[i]       storer i: the bulk copy has read dQ                consumer i
//
// Producer, products and storer are in the headers that backward_sm90.cu names. Messages with dQ: -1 without dQ;
// whether it is the last one. Its tile follows from the target of the step.
//
// The host provides: tensor maps; with kTakesTurns turns zeroed, otherwise d_q_sums zeroed; grid kv tiles * kv_heads *
// kv_batch, 384 threads, kSharedBytes of dynamic shared memory. d_k and d_v have 16-byte aligned rows. Runs after
// backward_delta.cu and before backward_finish_sm90.cu.
//
// Config: kBlockN = 128, kWarps = 8, kBlockM = 64; kQStages = 2, kStages = 2.
#include "attnc_config.cuh"

#ifndef ATTNC_ORDER
#define ATTNC_ORDER 0
#endif

#include "attnc_mod.cuh"

#include "algo/backward_rows_sm90.cuh"

namespace attnc::sm90 {

static_assert(kBlockM == 64 && DqSums::kColumns == 96 && kHeadDimV <= 128, "registers fit these tiles only");
static_assert(!kHasRates && !kHasSmall, "weights are the rates");
static_assert(kQStages == 2 && kStages == 2, "slots follow from the step");
// Orders of the loop's statements. ptxas serialises wgmma in some (C7511), which depends on its version and on the mod
// (src/jit/orders.h): 1 commits dQ behind dV; 2 and 3 compute other parts of the weights first.
constexpr bool kLateCommit = ATTNC_ORDER == 1;
using Memory =
    SharedMemory<KPart, VPart, QRing::Slots, ORing::Slots, SRing::Slots, DqPart<DqSums>, QRing::Control, ORing::Control,
                 SRing::Control, KvFull, DqMessage, DqFull, DqEmpty, OwnPlace, Turns, Targets, Rows>;
static_assert(Memory::kBytes == kSharedBytes, "the host asks for another size: src/plan");

// ---------------------------------------------------------------------------------------------------------- consumer

struct Consumer : RowConsumerParts<Consumer, Memory, true> {
  /// Groups of 8 rows of a step whose weights come first: biases of all would take 16 registers.
  static constexpr int kFirstPart = ATTNC_ORDER == 2 ? 7 : ATTNC_ORDER == 3 ? 5 : kGroups / 2;
  using SecondPiece = Fragment<1, 32>;

  /// Sets the rings to a step: slots and parities kept over a step would take registers.
  ATTNC_DEVICE void at_step(int at) {
    const int j = ptx::opaque(at);
    q.slot = o.slot = j & 1, q.parity = o.parity = j >> 1 & 1;
    s_ring.parity = j & 1;
    d_q_parity = j == 0 ? 0 : (j & 1) ^ 1;
  }

  /// Returns the registers of the second piece of dQ: those of the first if others would be too many. Where they are
  /// not, sharing makes ptxas serialise products at times (C7511).
  ATTNC_DEVICE static SecondPiece& second_piece(Scores& first, SecondPiece& own) {
    if constexpr (computed_columns(kHeadDimQk) + computed_columns(kHeadDimV) > 288) return (SecondPiece&)first;
    return own;
  }

  /// Returns where this consumer's dQ goes in shared memory, from group `first` of 8 columns on.
  ATTNC_DEVICE unsigned d_q_part(int first) const {
    return shared + Memory::offset_of<DqPart<DqSums>>() + group * DqSums::kPartBytes + 2048 * first;
  }

  /// Computes the weights of groups [Begin, End), unless no step follows.
  template <int Begin, int End, class Bias>
  ATTNC_DEVICE void weigh_unless(bool ends, const Scores& s, Weights& weights, const KvPlace<Mod>& place, Table table,
                                 Bias bias, Step step, const ForwardParams& f) const {
    const bool masked = step.flags & (kStepHasDead | kKvTail);
    if (Mod::Exponents::kCallsScore && ends)
      [[unlikely]];
    else
      weigh<Begin, End>(s, weights, place, table, bias, step, masked, false, f);
  }

  ATTNC_DEVICE void run() {
    ptx::mbarrier_wait(Barriers<Memory, KvFull>{shared}[0], 0);
    const KvTilePlace tile = own_place();
    const ForwardParams& f = forward_params_of<Mod>(p.base, args, tile.b);
    const bool tail = tile.start + kBlockN > f.kv_len;
    Fragment<1, KTile::kColumns> d_k;
    Fragment<1, VTile::kColumns> d_v;
    Scores d_p;
    Weights weights;
    Gradients d_s;
    d_k.fill(0.f);
    d_v.fill(0.f);
    KvPlace<Mod> place;
    Step step = {0, 0};
    Table::LateValues delta;
    table_of<Memory>(shared, 0).load_delta(delta); // meaningless yet, but its address must be one
    if (tail) clear_kv_tail(k_tile(), f.kv_len - tile.start, group);
    int j = 0; // the step, counted over all heads
#pragma unroll 1
    while (true) {
      // In flight: dP and dV of the last step.
      at_step(j);
      const bool has_last = j > 0;
      const bool last_masked = step.flags & (kStepMasked | kKvTail);
      Scores s; // then the first piece of dQ
      SecondPiece own_second;
      wgmma::wait<0>(d_p); // dP and dV are complete: then dS may take the registers of the weights
      differentiate<0, kGroups>(d_p, weights, d_s, delta, last_masked);
      wgmma::wait<0>(d_v); // again, or ptxas runs out of registers
      o.release_before(has_last);
      q.wait();
      int message[4];
      q.read_message(message);
      step = {message[0], message[1]};
      const bool ends = step.flags & kNoStep;
      clear_tail(q.tile(), step.flags, group);
      const Table table = table_of<Memory>(shared, q.slot);
      const auto bias = table.template bias<0, kFirstPart>();
      s_ring.acquire();
      write_d_s(d_s); // before products, for which it would have to wait
      commit_d_s();
      start_scores(s); // of the next step; garbage after the last one
      s_ring.wait();
      ptx::wgmma_fence();
      wgmma::start_gemm(d_k, s_ring.tile().from_row(64 * group), q.tile_of(q.slot_before()), j > 1); // dK += dS^T Q
      ptx::wgmma_commit_group();
      if (step.flags & kStepFirst) [[unlikely]] {
        q.read_message(message); // again: not kept
        const int row = 64 * group + ptx::opaque(threadIdx.x) / 32 % 4 * 16 + Scores::row(0);
        place = KvPlace<Mod>(f, args, message[2], message[3], own_place().start, row);
      }
      wgmma::wait<1>(s); // S is complete
      weigh_unless<0, kFirstPart>(ends, s, weights, place, table, bias, step, f);
      weigh_unless<kFirstPart, kGroups>(ends, s, weights, place, table, table.template bias<kFirstPart, kGroups>(),
                                        step, f);
      wgmma::wait<0>(d_k); // dK of the last step is complete
      q.release_before(has_last);

      at_step(j);
      ptx::wgmma_fence();
      wgmma::start_gemm(s, transposed(s_ring.tile()), SwizzledTile<Element, kBlockN, 64>{k_tile().slab(2 * group)}, 0);
      ptx::wgmma_commit_group();
      ptx::mbarrier_wait(Barriers<Memory, DqEmpty>{shared}[group], d_q_parity ^ 1);
      wgmma::wait<0>(s); // the first piece of dQ is complete
      DqSums::write(d_q_part(4 * group), s);
      auto& second = second_piece(s, own_second);
      ptx::wgmma_fence();
      wgmma::start_gemm(second, transposed(s_ring.tile()),
                        SwizzledTile<Element, kBlockN, 32>{k_tile().slab(1) + 64 * group}, 0);
      ptx::wgmma_commit_group();
      if (threadIdx.x % 128 == 0) ptx::st_shared(d_q_message<Memory>(shared, group), {has_last ? 0 : -1, int(ends)});
      wgmma::wait<0>(second); // the second piece of dQ is complete
      s_ring.release();
      DqSums::write(d_q_part(group ? 0 : 8), second);
      if (ends) break;
      o.wait();
      clear_tail(o.tile(), step.flags, group);
      start_d_p(d_p);
      if constexpr (!kLateCommit) commit_d_q(has_last);
      table.load_delta(delta);
      start_d_v(d_v, weights, has_last);
      if constexpr (kLateCommit) commit_d_q(has_last);
      ++j;
    }
    commit_d_q(true);
    if (j == 0) {
      d_k.fill(0.f);
      d_v.fill(0.f);
    }
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
