// Backward attention with wgmma and TMA, for sm_90a and head dims up to 256, where dK and dV are too wide for the
// registers of one warpgroup. Computes dK and dV, and sums of dQ.
//
//   P = exp(mod(scale Q K^T) - lse),  G = P (dO V^T - delta),  dS = scale mod'(scale Q K^T) G
//   dV = P^T dO,  dK = dS^T Q,  dQ = dS K
//
// A CTA owns kBlockN = 64 rows of K and V, which stay in shared memory. It walks Q in steps of kBlockM = 64 rows, of
// one query head. If several heads share a KV head (all batches' if K and V are broadcast), their CTAs add up dK and
// dV: algo/kv_sums.cuh. Two warpgroups share the products:
//
//   weigher         S^T = K Q^T, P^T, dV += P^T dO      evaluates the mod
//   differentiator  dP^T = V dO^T, dS^T, dK += dS^T Q
//
// dS = P mod' (dP - delta), so the differentiator only needs the rates P mod'. The weigher writes them to shared
// memory, rounded, in fragment order: each lane reads what the same lane of the other warpgroup wrote. dS goes to
// shared memory. Each warpgroup computes half of the columns of dQ, and adds them from registers to fp32 sums in global
// memory; in two pieces, because dK or dV leave few registers.
//
//   weigher, step j                           differentiator, step j
//   dQ(j-1), first piece and second           dQ(j-1), first piece and second
//   first piece to memory while S(j) runs     first piece to memory while dP(j) runs
//   second piece to memory                    second piece to memory
//   P(j), rates                               dS(j), once rates are ready
//   dV += P(j) dO(j), ..                      dK += dS(j) Q(j), ..
//
//   role            threads         registers   what
//   producer        warp 0          24          walks steps; issues loads of Q, dO; fills the table of rows
//   weigher         warpgroup 1     240         as above
//   differentiator  warpgroup 2     240
//
//   shared memory   bytes                                      lifetime
//   KPart, VPart    kBlockN rows of K, of V                    whole kernel
//   QRing           kQStages tiles of kBlockM x kHeadDimQk     a slot: until dK of its step is complete
//   ORing           kStages tiles of kBlockM x kHeadDimV, dO   a slot: until dV of its step is complete
//   Rates           a tile of kBlockN x kBlockM                until dS of the step is written
//   Gradients       2 tiles of kBlockN x kBlockM, dS^T         a slot: until dQ of its step is complete
//   Rows            kQStages RowTables                         as the slot of Q
//   control words   messages and barriers
//
//   barrier           completed by                                         waited for by
//   kv_full           producer: K and V requested; their bytes             both
//   q.full            producer: Q requested, message and rows written;     both
//                     its bytes
//   q.empty           both: S, dK and the reads of the rows are complete   producer
//   o.full            producer: dO requested; its bytes                    both
//   o.empty           both: dP and dV are complete                         producer
//   rates_full        weigher: rates written                               differentiator
//   gradients_full    differentiator: dS written                           both
//
// Rates and Gradients need no empty barriers. The weigher writes rates of step j after it has seen gradients_full of
// j-1, which follows the reads of rates j-1. A warp of the differentiator writes dS(j) over dS(j-2). It has seen
// gradients_full of j-1, which all its warps complete after their dQ(j-2), and rates of j, which follow the weigher's
// dQ(j-1).
//
// algo/backward_parts_sm90.cuh has the tiles, the rings of Q and dO, and their producer.
//
// The host provides: tensor maps; d_q_sums, kv_sums and kv_arrivals zeroed; grid kv tiles * kv_heads * kv_batch *
// sharers, 384 threads, kSharedBytes of dynamic shared memory. d_k and d_v have 16-byte aligned rows. Runs after
// backward_delta.cu and before backward_finish_sm90.cu.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/backward_parts_sm90.cuh"
#include "algo/d_q_sums.cuh"
#include "algo/kv_sums.cuh"
#include "ptx/red.cuh"
#include "ptx/tma.cuh"
#include "tile/gemm_wgmma.cuh"

namespace attnc::sm90 {

static_assert(!kTakesTurns, "sums of dQ are zero before, and added to in any order");
static_assert(kWarps == 8 && kBlockN == 64 && kBlockM == 64, "two warpgroups share the products of 64 x 64 scores");
constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;

using Scores = Fragment<1, kBlockM>;
using Packed = PackedFragment<Element, 1, kBlockM>;
constexpr int kGroups = Scores::kGroups;

struct Rates : SharedPart<Rates, STile::kBytes, 16> {};
struct Gradients : SharedPart<Gradients, 2 * STile::kBytes, 1024> {};
struct RatesFull : BarrierParts<RatesFull, 1, kWarps / 2> {};
struct GradientsFull : BarrierParts<GradientsFull, 2, kWarps / 2> {};
using Memory = SharedMemory<KPart, VPart, QRing::Slots, ORing::Slots, Gradients, Rates, QRing::Control, ORing::Control,
                            KvFull, RatesFull, GradientsFull, Rows>;
static_assert(Memory::kBytes == kSharedBytes, "the host asks for another size: src/plan");

/// Returns the address of a lane's rates of 16 rows of Q.
ATTNC_DEVICE unsigned rates_at(unsigned shared, int step) {
  return shared + Memory::offset_of<Rates>() + 2048 * step + threadIdx.x % 128 * 16;
}

/// The part that both consumers share: half of the columns of the last step's dQ. `Group`: which half.
template <int Group> struct QueryGradient {
  // Pieces are a slab of K or half of one. If K has an odd number of slabs, the two halves meet within one.
  static constexpr int kColumns = DqSums::kColumns;
  static constexpr int kFirst = kColumns % 64 && (Group == 1 || kColumns < 64) ? 32 : 64;
  static constexpr int kSecond = kColumns - kFirst; // may be 0
  using First = Fragment<1, kFirst>;
  using Second = Fragment<1, kSecond ? kSecond : kFirst>;

  const BackwardParamsSm90& p;
  unsigned shared;
  int step = -1;       // the last one; below 0: none
  float* to = nullptr; // this lane's sums in the last step's tile

  ATTNC_DEVICE bool has_step() const { return step >= 0; }
  ATTNC_DEVICE STile gradients(int of_step) const {
    return {shared + Memory::offset_of<Gradients>() + (of_step & 1) * STile::kBytes};
  }
  ATTNC_DEVICE unsigned full(int of_step) const { return Barriers<Memory, GradientsFull>{shared}[of_step & 1]; }

  template <int Begin, int Columns> ATTNC_DEVICE void start_piece(Fragment<1, Columns>& d_q) const {
    constexpr int kBegin = Group * kColumns + Begin;
    const KTile k = k_tile_of<Memory>(shared);
    wgmma::start_gemm(d_q, transposed(gradients(step)),
                      SwizzledTile<Element, kBlockN, Columns>{k.slab(kBegin / 64) + kBegin % 64 * 2}, 0);
  }
  /// Starts two groups of products. Without a step the result is garbage and must not be added.
  ATTNC_DEVICE void start(First& first, Second& second) const {
    ptx::mbarrier_wait(full(step), step >> 1 & 1); // for step -1 this returns at once
    ptx::wgmma_fence();
    start_piece<0>(first);
    ptx::wgmma_commit_group();
    if constexpr (kSecond) start_piece<kFirst>(second);
    ptx::wgmma_commit_group();
  }
  template <int Begin, int Columns> ATTNC_DEVICE void add(Fragment<1, Columns>& d_q) const {
    wgmma::touch(d_q);
    if (!has_step()) return;
#pragma unroll
    for (int n = 0; n < Columns / 8; ++n) {
      const float(&x)[4] = d_q.x[0][n];
      ptx::red_add4(to + 512 * (Begin / 8 + n), x[0], x[1], x[2], x[3]);
    }
  }
  ATTNC_DEVICE void add_first(First& d_q) const { add<0>(d_q); }
  ATTNC_DEVICE void add_second(Second& d_q) const {
    if constexpr (kSecond) add<kFirst>(d_q);
  }

  ATTNC_DEVICE void advance(const ModArgs& args, const int (&message)[4]) {
    const int tile = head_tile_of<Mod, kBlockM>(p.base.forward, args, message[2], message[3], message[0]);
    to = DqSums::part(p.d_q_sums, tile, Group) + threadIdx.x % 128 * 4;
    ++step;
  }
};

// ----------------------------------------------------------------------------------------------------------- weigher

struct Weigher {
  using Weights = PackedWeights<Element, kBlockM>;

  const BackwardParamsSm90& p;
  const ModArgs& args;
  unsigned shared;
  Ring<Memory, QRing> q = {shared};
  Ring<Memory, ORing> o = {shared};

  /// Computes the weights of a step, and writes their rates to shared memory, for groups [Begin, kGroups) of 8 rows of
  /// Q. Two groups at a time, so that few values stay in registers in between.
  template <bool Small, int Begin = 0, class Bias>
  ATTNC_DEVICE void weigh(const Scores& s, Weights& weights, const KvPlace<Mod>& place, Table table, Bias bias,
                          Step step, bool masked, const ForwardParams& f) const {
    constexpr int kEnd = Begin + 2;
    to_weights<Begin, kEnd, Small>(s, weights, f, args, place, table, bias, step);
    if (masked) drop_dead<Begin, kEnd>(weights, f, args, place, table, step);
    ptx::st_shared(rates_at(shared, Begin / 2), (const int(&)[4])weights.rates().a[0][Begin / 2]);
    if constexpr (kEnd < kGroups) weigh<Small, kEnd>(s, weights, place, table, bias, step, masked, f);
  }

  ATTNC_DEVICE void run() {
    const KvTilePlace tile(p, args);
    const ForwardParams& f = forward_params_of<Mod>(p.base, args, tile.b);
    const int row_of_tile = threadIdx.x / 32 % 4 * 16 + Scores::row(0);
    const bool tail = tile.start + kBlockN > f.kv_len;
    QueryGradient<0> d_q = {p, shared};
    Fragment<1, VTile::kColumns> d_v;
    Scores s;
    Weights weights;
    KvPlace<Mod> place;
    d_v.fill(0.f);
    ptx::mbarrier_wait(Barriers<Memory, KvFull>{shared}[0], 0);
    if (tail) clear_kv_tail(k_tile_of<Memory>(shared), f.kv_len - tile.start, 0);
#pragma unroll 1
    while (true) {
      // In flight: dV of the last step.
      QueryGradient<0>::First first;
      QueryGradient<0>::Second second;
      d_q.start(first, second);
      q.wait();
      int message[4];
      q.read_message(message);
      clear_tail(q.tile(), message[1], 0);
      wgmma::wait<1>(d_v); // dV and the first piece of dQ are complete
      o.release_before(d_q.has_step());
      d_q.add_first(first);
      wgmma::touch(s);
      ptx::wgmma_fence();
      wgmma::start_gemm(s, k_tile_of<Memory>(shared), transposed(q.tile()),
                        0); // S^T = K Q^T; garbage after the last step
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<1>();
      d_q.add_second(second);
      const bool ends = message[2] < 0;
      if (!ends && (message[2] != place.b || message[3] != place.h || !d_q.has_step())) [[unlikely]]
        place = KvPlace<Mod>(f, args, message[2], message[3], tile.start, row_of_tile);
      const Step step = {message[0], message[1]};
      const Table table = table_of<Memory>(shared, q.slot);
      const auto bias = table.template bias<0, kGroups>();
      wgmma::wait<0>(s); // S is complete
      if (ends) break;
      const bool masked = tail || step.flags & kStepHasDead;
      const bool small = are_small(place, s);
      if (kHasSmall && small)
        weigh<kHasSmall>(s, weights, place, table, bias, step, masked, f);
      else
        weigh<false>(s, weights, place, table, bias, step, masked, f);
      arrive_by_warp(Barriers<Memory, RatesFull>{shared}[0]);
      q.release();
      o.wait();
      clear_tail(o.tile(), step.flags, 0);
      ptx::wgmma_fence();
      wgmma::start_gemm(d_v, weights.weights, o.tile(), d_q.has_step()); // dV += P^T dO
      ptx::wgmma_commit_group();
      d_q.advance(args, message);
      q.advance();
      o.advance();
    }
    if (!d_q.has_step()) d_v.fill(0.f);
    if (p.sharers > 1 && !KvSums{p, tile.tile}.add<0>(d_v, !d_q.has_step())) return;
    const BackwardParams& base = params_of<Mod>(p.base, args, tile.b);
    store_gradient<kHeadDimV>(d_v, 1.f, base.d_v, base.d_v_stride, tile, row_of_tile,
                              with_padding<Mod>(p.base.forward, f).kv_len);
  }
};

// ---------------------------------------------------------------------------------------------------- differentiator

struct Differentiator {
  const BackwardParamsSm90& p;
  unsigned shared;
  Ring<Memory, QRing> q = {shared};
  Ring<Memory, ORing> o = {shared};

  ATTNC_DEVICE void run(const ModArgs& args) {
    const KvTilePlace owned(p, args);
    const ForwardParams& f = forward_params_of<Mod>(p.base, args, owned.b);
    const bool tail = owned.start + kBlockN > f.kv_len;
    QueryGradient<1> d_q = {p, shared};
    Fragment<1, KTile::kColumns> d_k;
    Scores d_p;
    Packed d_s;
    d_k.fill(0.f);
    ptx::mbarrier_wait(Barriers<Memory, KvFull>{shared}[0], 0);
    if (tail) clear_kv_tail(k_tile_of<Memory>(shared), f.kv_len - owned.start, 1);
#pragma unroll 1
    while (true) {
      // In flight: dK of the last step.
      QueryGradient<1>::First first;
      QueryGradient<1>::Second second;
      d_q.start(first, second);
      q.wait();
      int message[4];
      q.read_message(message);
      const bool ends = message[2] < 0;
      if (!ends) o.wait();
      clear_tail(q.tile(), message[1], 1);
      clear_tail(o.tile(), message[1], 1);
      Table::Values<> delta;
      table_of<Memory>(shared, q.slot).load_delta(delta);
      wgmma::wait<1>(d_k); // dK and the first piece of dQ are complete
      q.release_before(d_q.has_step());
      d_q.add_first(first);
      wgmma::touch(d_p);
      ptx::wgmma_fence();
      wgmma::start_gemm(d_p, v_tile_of<Memory>(shared), transposed(o.tile()),
                        0); // dP^T = V dO^T; garbage after the last step
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<1>();
      d_q.add_second(second);
      wgmma::wait<0>(d_p); // dP is complete
      if (ends) break;
      o.release();
      const int now = d_q.step + 1;
      ptx::mbarrier_wait(Barriers<Memory, RatesFull>{shared}[0], now & 1);
      Packed rates;
#pragma unroll
      for (int i = 0; i < kBlockM / 16; ++i) ptx::ld_shared((int(&)[4])rates.a[0][i], rates_at(shared, i));
      to_gradients<0, kGroups>(d_p, rates, d_s, delta);
      if (tail || message[1] & kStepMasked) drop_dead<0, kGroups>(d_s, rates);
      write_gradients(d_q.gradients(now), 0, d_s);
      ptx::wgmma_fence();
      wgmma::start_gemm(d_k, d_s, q.tile(), d_q.has_step()); // dK += dS^T Q
      ptx::wgmma_commit_group();
      ptx::fence_proxy_async();
      arrive_by_warp(d_q.full(now));
      d_q.advance(args, message);
      q.advance();
      o.advance();
    }
    if (!d_q.has_step()) d_k.fill(0.f);
    const int row_of_tile = threadIdx.x / 32 % 4 * 16 + Scores::row(0);
    const KvTilePlace tile(p, args);
    if (p.sharers > 1 && !KvSums{p, tile.tile}.add<1>(d_k, !d_q.has_step())) return;
    const BackwardParams& base = params_of<Mod>(p.base, args, tile.b);
    store_gradient<kHeadDimQk>(d_k, f.scale, base.d_k, base.d_k_stride, tile, row_of_tile,
                               with_padding<Mod>(p.base.forward, f).kv_len);
  }
};

extern "C" __global__ void __launch_bounds__(threads_of(kWarps), 1)
    attnc_backward(const __grid_constant__ BackwardParamsSm90 p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  const unsigned shared = shared_base(dynamic_shared);
  if (!begin<Memory>(shared, p, args)) return;
  run_roles<kProducerRegisters, kConsumerRegisters>(
      [&](int warp) {
        if (warp == 0) Producer<Memory>{p, args, shared}.run();
      },
      [&](int group) {
        if (group == 0)
          Weigher{p, args, shared}.run();
        else
          Differentiator{p, shared}.run(args);
      });
}

} // namespace attnc::sm90
