// What the consumers and storers of the Hopper backward kernels share whose dK and dV fit into registers: two consumer
// warpgroups, which own 64 of the CTA's kBlockN = 128 rows of K and V each.
#pragma once

#include "attnc_mod.cuh"

#include "algo/backward_tiles_sm90.cuh"
#include "algo/transposed_scores.cuh"
#include "ptx/tma.cuh"
#include "tile/gemm_wgmma.cuh"

namespace attnc::sm90 {

static_assert(kWarps == 8 && kBlockN == 128, "two warpgroups own 64 rows of K and V each");
// Registers per thread, of the launch's 168. Consumers come first: beyond head dim 64 each holds 64 x 128 of dK and of
// dV.
constexpr int kProducerRegisters = kHeadDimQk <= 64 ? 40 : 24, kConsumerRegisters = kHeadDimQk <= 64 ? 232 : 240;

/// With two slots, `empty` is unused.
struct SRing : RingParts<SRing, STile, (kHeadDimQk > 128 ? 1 : 2), 0, Arrivals{.full = kWarps, .empty = kWarps}> {};
/// dQ of a step on its way out, a slot for each consumer.
template <class DqOut> struct DqPart : SharedPart<DqPart<DqOut>, 2 * DqOut::kPartBytes, DqOut::kAlign> {};
struct DqMessage : SharedPart<DqMessage, 2 * 8, 8> {}; // of each consumer with its dQ: tile (< 0: none), is_last
struct DqFull : BarrierParts<DqFull, 2, 4> {};
struct DqEmpty : BarrierParts<DqEmpty, 2, 1> {};

template <class Memory> ATTNC_DEVICE unsigned d_q_message(unsigned shared, int group) {
  return shared + Memory::template offset_of<DqMessage>() + 8 * group;
}

/// A consumer's rings, products and dQ. Self: the consumer, with drop<Begin, End>(weights, f, place, table, step),
/// which drops the dead weights of groups [Begin, End). DqOut: how dQ of a step leaves (DqSums). Tight: whether a score
/// takes many registers, or much time, while products run; then dS is completed before S of the next step.
template <class Self, class Params, class Memory, class QRing, class DqOut, bool Tight> struct ConsumerParts {
  using Scores = Fragment<1, kBlockM>;
  using Weights = PackedWeights<Element, kBlockM>;
  using Gradients = PackedFragment<Element, 1, kBlockM>;
  static constexpr int kGroups = kBlockM / 8; // of 8 rows of Q
  /// Groups after which S of the next step begins: a quarter of them, or all.
  static constexpr int kSplit = kBlockM == 64 && !Tight ? 4 : 1, kFirst = kGroups / kSplit;
  /// Groups whose weights are computed while dQ runs; the others while dP runs.
  static constexpr int kEarly = kBlockM == 64 ? kGroups / 4 : kGroups / 2;

  const Params& p;
  const ModArgs& args;
  unsigned shared;
  int group; ///< which consumer warpgroup, uniform over the warp

  Ring<Memory, QRing> q = {shared};
  Ring<Memory, ORing> o = {shared};
  Ring<Memory, SRing> s_ring = {shared};
  unsigned d_q_parity = 0;

  ATTNC_DEVICE KTile k_tile() const { return k_tile_of<Memory>(shared); }
  ATTNC_DEVICE VTile v_tile() const { return v_tile_of<Memory>(shared); }

  /// Writes a step's dQ to shared memory, for the storer. `is_last`: whether no step follows.
  ATTNC_DEVICE void write_d_q(const typename DqOut::Part& d_q, int tile, bool is_last = false) {
    ptx::mbarrier_wait(Barriers<Memory, DqEmpty>{shared}[group], d_q_parity ^ 1);
    DqOut::write(shared + Memory::template offset_of<DqPart<DqOut>>() + group * DqOut::kPartBytes, d_q);
    if (threadIdx.x % 128 == 0) ptx::st_shared(d_q_message<Memory>(shared, group), {tile, is_last});
  }
  /// Commits it later, because the fence waits until all is written.
  ATTNC_DEVICE void commit_d_q(bool really) {
    ptx::fence_proxy_async();
    arrive_by_warp(Barriers<Memory, DqFull>{shared}[group], really);
    d_q_parity ^= really;
  }

  /// Computes the weights of groups [Begin, End) of 8 rows of Q.
  // NOTE: both branches do the same work, so that ptxas does not move it past the waits around it. drop() is a function
  // and no argument, because a lambda keeps more of what it needs in registers.
  template <int Begin, int End, class Place, class Table, class Bias>
  ATTNC_DEVICE void weigh(const Scores& s, Weights& weights, const Place& place, Table table, Bias bias, Step step,
                          bool masked, bool small, const ForwardParams& f) const {
    const Self& self = static_cast<const Self&>(*this);
    if constexpr (kHasSmall) {
      if (small)
        to_weights<Begin, End, true>(s, weights, f, args, place, table, bias, step);
      else
        to_weights<Begin, End, false>(s, weights, f, args, place, table, bias, step);
      if (masked) self.template drop<Begin, End>(weights, f, place, table, step);
    } else if (masked) {
      to_weights<Begin, End, false>(s, weights, f, args, place, table, bias, step);
      self.template drop<Begin, End>(weights, f, place, table, step);
    } else {
      to_weights<Begin, End, false>(s, weights, f, args, place, table, bias, step);
    }
  }

  template <int Begin, int End> ATTNC_DEVICE void drop_gradients(Gradients& d_s, const Gradients& rates) const {
    drop_dead<Begin, End>(d_s, rates);
  }

  template <int Begin, int End, class Delta>
  ATTNC_DEVICE static void find_gradients(const Scores& d_p, Weights& weights, Gradients& d_s, const Delta& delta) {
    if constexpr (kDrops<Mod>)
      to_gradients<Begin, End>(d_p, weights.rates(), d_s, delta, weights.weights);
    else
      to_gradients<Begin, End>(d_p, weights.rates(), d_s, delta);
  }

  /// Computes dS of groups [Begin, End) from dP. `masked`: whether dead ones must be dropped, by drop_gradients() with
  /// `table`.
  template <int Begin, int End, class Delta, class... Table>
  ATTNC_DEVICE void differentiate(const Scores& d_p, Weights& weights, Gradients& d_s, const Delta& delta, bool masked,
                                  Table... table) const {
    if (masked) {
      find_gradients<Begin, End>(d_p, weights, d_s, delta);
      static_cast<const Self&>(*this).template drop_gradients<Begin, End>(d_s, weights.rates(), table...);
    } else {
      find_gradients<Begin, End>(d_p, weights, d_s, delta);
    }
  }

  /// Starts S^T = K Q^T for the next Q of the ring.
  ATTNC_DEVICE void start_scores(Scores& s) {
    wgmma::touch(s);
    ptx::wgmma_fence();
    wgmma::start_gemm(s, k_tile().from_row(64 * group), transposed(q.tile()), 0);
    ptx::wgmma_commit_group();
  }
  /// Starts dP^T = V dO^T.
  ATTNC_DEVICE void start_d_p(Scores& d_p) {
    ptx::wgmma_fence();
    wgmma::start_gemm(d_p, v_tile().from_row(64 * group), transposed(o.tile()), 0);
    ptx::wgmma_commit_group();
  }
  /// Starts dV += P^T dO.
  template <class Out> ATTNC_DEVICE void start_d_v(Out& d_v, const Weights& weights, bool has_last) {
    ptx::wgmma_fence();
    wgmma::start_gemm(d_v, weights.weights, o.tile(), has_last);
    ptx::wgmma_commit_group();
  }

  /// Writes dS to shared memory.
  ATTNC_DEVICE void write_d_s(const Gradients& d_s) { write_gradients(s_ring.tile(), 64 * group, d_s); }
  ATTNC_DEVICE void commit_d_s() {
    ptx::fence_proxy_async();
    s_ring.commit();
  }
  /// Starts dK += dS^T Q and, once both consumers have written their dS, dQ = dS K, both of the last step. With kSplit
  /// = 1 dS is written already: before other products, for which it would have to wait.
  template <class Out>
  ATTNC_DEVICE void start_d_k_and_d_q(Out& d_k, typename DqOut::Part& d_q, const Gradients& d_s, bool has_older) {
    if constexpr (kSplit > 1) write_d_s(d_s);
    ptx::wgmma_fence();
    wgmma::start_gemm(d_k, d_s, q.tile_of(q.slot_before()), has_older);
    ptx::wgmma_commit_group();
    if constexpr (kSplit > 1) commit_d_s();
    s_ring.wait();
    ptx::wgmma_fence();
    start_d_q(d_q, s_ring.tile());
    ptx::wgmma_commit_group();
  }
  /// Starts dQ = dS K for this warpgroup's part of the tile.
  ATTNC_DEVICE void start_d_q(typename DqOut::Part& d_q, STile s) {
    if constexpr (DqOut::kByRows) {
      wgmma::start_gemm(d_q, transposed(SwizzledTile<Element, kBlockN, 64>{s.slab(group)}), k_tile(), 0);
    } else {
      // Columns of K: a slab, or half of one.
      using Part = SwizzledTile<Element, kBlockN, DqOut::kColumns>;
      const unsigned base = DqOut::kColumns == 64 ? k_tile().slab(group) : k_tile().base + 64 * group;
      wgmma::start_gemm(d_q, transposed(s), Part{base}, 0);
    }
  }
};

} // namespace attnc::sm90
