// Tangents of attention and of dQ with wgmma and TMA, for sm_90a. algo/tangents.cuh has the formulas. Deterministic: no
// atomics.
//
// Two kernels. A CTA owns kBlockM = 128 rows of Q, 64 per consumer, and walks KV in steps of kBlockN columns.
// attnc_tangent_rows writes out., lse. and per row the sum of exp(mod(s) - lse), delta and delta.; five products.
// attnc_tangent_q runs after it and writes d_q.; seven products. lse is known, so no row follows a maximum.
//
//   a consumer's loop     tensor cores                            other units
//   attnc_tangent_rows    S(i), S.(i)
//                         out. += (P m.)(i-1) V, P(i-1) V.        mod, weights of i
//   attnc_tangent_q       S(i), S.(i); dQ. of i-1
//                         dP(i), dP.(i)
//                         those of the other consumer             mod, gradients of i
//
//   role          threads             registers   what
//   producer      one thread          24 or 40    walks steps; issues TMA loads
//   consumer i    a warpgroup         240 or 232  products, mod; stores its rows
//
//   shared memory   bytes                                            lifetime
//   QPart           2 tiles of kBlockM x kHeadDimQk: Q, Q.           whole kernel; then staging of the result
//   OPart           a tile of kBlockM x kHeadDimV: dO                attnc_tangent_q
//   KRing           kStages times 2 tiles of kBlockN x kHeadDimQk    a slot: K, K. until the step's products with them
//   VRing           kStages times 2 tiles of kBlockN x kHeadDimV     a slot: V, V. until the step's products with them
//   control words   messages and barriers
//
//   barrier           completed by                                          waited for by
//   q_full            producer: Q, Q. (and dO) requested; their bytes       consumers
//   k.full            producer: K, K. requested, message; their bytes       consumers
//   k.empty           consumers: S, S. complete; in attnc_tangent_q dQ.     producer
//   v.full, v.empty   producer: V, V. requested, their bytes; consumers:    consumers, producer
//                     the step's products with them complete
//   GroupBarriers     consumer i: its products with Q are complete          consumer i
//
// Messages with K: the step's first column, StepFlags or kNoStep.
//
// The first round computes garbage for the step before, and does not use it; the last one for a step that does not
// exist. Else ptxas gives up on wgmma in flight, whose accumulators would be defined in two places.
//
// Grid: q tiles * q_heads * batch, in one dimension. Threads: 128 + 32 kWarps; kSharedBytes of dynamic shared memory.
// t_out and d_q have 16-byte aligned rows.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/kv_walk.cuh"
#include "algo/tangents_sm90.cuh"

namespace attnc::sm90 {

struct QPart : SharedPart<QPart, QTiles::kBytes, 1024> {};
struct OPart : SharedPart<OPart, OTile::kBytes, 1024> {};
struct KRing : RingParts<KRing, KTiles, kStages, 2, Arrivals{.full = 1, .empty = kWarps}> {};
struct VRing : RingParts<VRing, VTiles, kStages, 0, Arrivals{.full = 1, .empty = kWarps}> {};
struct QFull : BarrierParts<QFull, 1, 1> {};
using Memory = SharedMemory<QPart, OPart, KRing::Slots, VRing::Slots, KRing::Control, VRing::Control, QFull>;
static_assert(Memory::kBytes == kSharedBytes, "the host asks for another size: src/families/tangents.cpp");

/// What all roles know.
struct Parts {
  const TangentParamsSm90& p;
  const ModArgs& args;
  unsigned shared;
  const TangentParams& t = p.base;
  const ForwardParams& f = t.backward.forward;
  const HeadTile rows = q_tile_from_end<Mod, kBlockM>(f, args, blockIdx.x);
  Ring<Memory, KRing> k = {shared};
  Ring<Memory, VRing> v = {shared};

  ATTNC_DEVICE QTiles q_tiles() const { return {shared + Memory::offset_of<QPart>()}; }
  ATTNC_DEVICE OTile o_tile() const { return {shared + Memory::offset_of<OPart>()}; }
  ATTNC_DEVICE unsigned q_full() const { return Barriers<Memory, QFull>{shared}[0]; }
};

struct Producer : Parts {
  ATTNC_DEVICE void run(bool with_d_out) {
    const auto [b, h, q_start] = rows;
    ptx::mbarrier_arrive_expect_tx(q_full(), QTiles::kBytes + (with_d_out ? OTile::kBytes : 0));
    request(q_tiles(), p.q, q_full(), q_start, h, b);
    if (with_d_out) request_tile(o_tile(), p.d_out, q_full(), q_start, h, b * p.d_out_batch_step);
    const auto walk = walk_kv<Mod, kBlockN, kBlockSparse>(f, args, b, h, q_start, min(q_start + kBlockM, f.q_len));
#pragma unroll 1
    for (int i = 0; i < walk.count; ++i) {
      const Step step = walk.at(i);
      k.acquire();
      k.write_message({step.start, step.flags});
      ptx::mbarrier_arrive_expect_tx(k.full(), KTiles::kBytes);
      request(k.tile(), p.k, k.full(), step.start, h / f.group, b);
      v.acquire();
      ptx::mbarrier_arrive_expect_tx(v.full(), VTiles::kBytes);
      request(v.tile(), p.v, v.full(), step.start, h / f.group, b);
      k.advance();
      v.advance();
    }
    k.acquire();
    k.write_message({0, kNoStep});
    ptx::mbarrier_arrive(k.full());
  }
};

/// A warpgroup, which owns 64 rows.
struct Consumer : Parts {
  using Scores = Fragment<1, kBlockN>;
  using Operand = PackedFragment<Element, 1, kBlockN>;

  int group; ///< which consumer, uniform over the warp
  const Place<1> place = {f,      args,       rows.b,
                          rows.h, rows.start, 64 * group + int(threadIdx.x) / 32 % 4 * 16 + Scores::row(0)};

  ATTNC_DEVICE long long row_index(int r) const { return row_of_all(f, rows.b, rows.h, place.q_idx(f, r)); }

  /// Waits for the next step's K and returns the step.
  ATTNC_DEVICE Step await_step() const {
    k.wait();
    int x[2];
    k.read_message(x);
    return {x[0], x[1]};
  }

  /// Starts S and S. of the current step.
  ATTNC_DEVICE void start_scores(Scores& s, Scores& t_s) const {
    const auto q = q_tiles().own().from_row(64 * group), t_q = q_tiles().tangent().from_row(64 * group);
    wgmma::start_gemm(s, q, transposed(k.tile().own()), 0);
    wgmma::start_gemm(t_s, t_q, transposed(k.tile().own()), 0);
    wgmma::start_gemm(t_s, q, transposed(k.tile().tangent()), 1);
    ptx::wgmma_commit_group();
  }

  /// Calls function(column, its Coord in row r, masked, n, e, r) for the lane's two scores of each row and each group
  /// of 8 columns, and then done(n, r). `masked` is a constant in most steps, and so is whether columns live.
  template <class Function, class Done> ATTNC_DEVICE void for_scores(Step step, Function function, Done done) const {
    const auto call = [&](bool masked, bool has_tail) ATTNC_INLINED {
#pragma unroll
      for (int n = 0; n < kBlockN / 8; ++n) {
        const int first = place.kv_first(step) + 8 * n;
        Column columns[2] = {{f, args, place, first}, {f, args, place, first + 1}};
        if (!has_tail) columns[0].lives = columns[1].lives = true;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
#pragma unroll
          for (int e = 0; e < 2; ++e)
            function(columns[e], Coord{rows.b, rows.h, place.position(f, args, r), columns[e].kv_idx}, masked, n, e, r);
          done(n, r);
        }
      }
    };
    if (step.flags & (kStepMasked | kStepTail))
      call(step.flags & kStepMasked, true);
    else
      call(false, false);
  }
};

// --------------------------------------------------------------------------------------------------- out. and delta.

struct RowsConsumer : Consumer {
  const float bias[2] = {bias_of(f.lse[row_index(0)]), bias_of(f.lse[row_index(1)])};
  float sums[2] = {}, t_sums[2] = {}; ///< the lane's: of weights, and of weights times (m. - origin)
  /// What tangents of scores are counted from: their mean in the first step that lives. So what all scores of a row
  /// have in common does not cancel in 16 bits.
  float origin[2] = {};
  bool has_origin[2] = {};

  /// Makes of S and S. the A operands: P f (m. - origin) and P f.
  ATTNC_DEVICE void weigh(Step step, Scores& s, Scores& t_s) {
    float weights[2] = {}, of_step[2] = {};
    for_scores(
        step,
        [&](const Column& column, Coord at, bool masked, int n, int e, int r) ATTNC_INLINED {
          const MovingScore score(args, place.head, place.row[r], column.col, at, s.at(r, n, e) * f.scale,
                                  t_s.at(r, n, e) * f.scale, bias[r], column.lives, masked);
          weights[r] += score.weight, of_step[r] += score.weight * score.t_score;
          s.at(r, n, e) = score.t_score, t_s.at(r, n, e) = score.weight * score.factor;
        },
        [](int, int) {});
    if (__any_sync(0xffffffffu, !has_origin[0] || !has_origin[1])) [[unlikely]]
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float all = quad_sum(weights[r]), t_all = quad_sum(of_step[r]);
        if (has_origin[r] || all == 0.f) continue;
        origin[r] = t_all * ptx::rcp(all);
        has_origin[r] = true;
      }
#pragma unroll
    for (int r = 0; r < 2; ++r) sums[r] += weights[r], t_sums[r] += of_step[r] - weights[r] * origin[r];
#pragma unroll
    for (int n = 0; n < kBlockN / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) s.x[0][n][e] = (s.x[0][n][e] - origin[e / 2]) * t_s.x[0][n][e];
  }

  ATTNC_DEVICE void run() {
    Scores s, t_s;
    Operand moved, weights;
    Fragment<1, kVColumns> sum;
    bool has_last = false, has_older = false; // a step before this one, and before that
    ptx::mbarrier_wait(q_full(), 0);
#pragma unroll 1
    while (true) {
      const Step step = await_step();
      wgmma::touch(s), wgmma::touch(t_s), wgmma::touch(sum);
      ptx::wgmma_fence();
      start_scores(s, t_s);
      wgmma::start_gemm(sum, moved, v.tile().own(), has_older);
      wgmma::start_gemm(sum, weights, v.tile().tangent(), 1);
      ptx::wgmma_commit_group();
      wgmma::wait<1>(s, t_s); // NOTE: in front of the branch. Else ptxas serialises wgmma (C7514)
      if (step.flags & kNoStep) break;
      k.release();
      k.advance();
      weigh(step, s, t_s);
      wgmma::wait<0>(sum);
      v.release(has_last);
      v.advance(has_last);
      moved.pack(s);
      weights.pack(t_s);
      has_older = has_last;
      has_last = true;
      v.wait();
    }
    wgmma::wait<0>(sum);
    if (!has_last) sum.fill(0.f);
    store(sum);
  }

  /// Stores out. = sum - (lse. - origin) out, and what the row's gradients need.
  ATTNC_DEVICE void store(Fragment<1, kVColumns>& sum) {
    const BackwardParams& p = t.backward;
    const auto [b, h, q_start] = rows;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const MovingSink sink(args, place, r, place.position(f, args, r), bias[r]);
      const float all = quad_sum(sums[r]) + sink.weight, share = all == 0.f ? 0.f : ptx::rcp(all);
      const float moves = (quad_sum(t_sums[r]) + sink.weight * (sink.t_sink - origin[r])) * share;
      const int q_idx = place.q_idx(f, r);
      const Element* out =
          (const Element*)f.out + b * f.out_stride.batch + h * f.out_stride.head + q_idx * f.out_stride.row;
      const Element* d_out =
          (const Element*)p.d_out + b * p.d_out_stride.batch + h * p.d_out_stride.head + q_idx * p.d_out_stride.row;
      float delta = 0.f, t_delta = 0.f;
#pragma unroll
      for (int n = 0; n < kVColumns / 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int column = Fragment<1, kVColumns>::column(n, e);
          if (column >= kHeadDimV) continue;
          const float o = to_float(out[column]), d = to_float(d_out[column]);
          float& x = sum.at(r, n, e);
          x = x * share - moves * o;
          delta += d * o, t_delta += d * x;
        }
      delta = quad_sum(delta), t_delta = quad_sum(t_delta);
      const long long index = row_index(r);
      if (threadIdx.x % 4 == 0 && unsigned(place.q_first + place.offset(r)) < unsigned(f.q_len)) {
        p.row_sums[index] = all;
        p.delta[index] = delta - (p.d_lse ? p.d_lse[index] : 0.f);
        t.t_lse[index] = origin[r] + moves, t.t_delta[index] = t_delta;
      }
    }
    store_rows_by<kHeadDimV>(q_tiles().own(), group, t.t_out, t.t_out_stride, b, h, q_start, f.q_len, sum, 1.f);
  }
};

// ---------------------------------------------------------------------------------------------------------------- d_q.

struct GradientConsumer : Consumer {
  ATTNC_DEVICE void run() {
    const RowState state[2] = {row_state(t, row_index(0), true), row_state(t, row_index(1), true)};
    Scores s, t_s, d_p, t_d_p;
    Operand t_d_s, d_s;
    Fragment<1, kQColumns> d_q;
    bool has_last = false, has_older = false;
    ptx::mbarrier_wait(q_full(), 0);
    const OTile d_out = o_tile().from_row(64 * group);
#pragma unroll 1
    while (true) {
      const Step step = await_step();
      const KTiles last = k.tile_of(k.slot_before());
      wgmma::touch(s), wgmma::touch(t_s), wgmma::touch(d_q);
      ptx::wgmma_fence();
      start_scores(s, t_s);
      wgmma::start_gemm(d_q, t_d_s, last.own(), has_older);
      wgmma::start_gemm(d_q, d_s, last.tangent(), 1);
      ptx::wgmma_commit_group();
      if (step.flags & kNoStep) break;
      v.wait();
      wgmma::wait<0>(s, t_s, d_q);
      k.release_before(has_last);
      wgmma::touch(d_p), wgmma::touch(t_d_p);
      ptx::wgmma_fence();
      wgmma::start_gemm(d_p, d_out, transposed(v.tile().own()), 0);
      wgmma::start_gemm(t_d_p, d_out, transposed(v.tile().tangent()), 0);
      ptx::wgmma_commit_group();
      wgmma::wait<0>(d_p, t_d_p);
      v.release();
      float t_pair[2], pair[2]; // of dS., of dS
      for_scores(
          step,
          [&](const Column& column, Coord at, bool masked, int n, int e, int r) ATTNC_INLINED {
            const MovingGradient mine(args, place.head, place.row[r], column.col, at, s.at(r, n, e) * f.scale,
                                      t_s.at(r, n, e) * f.scale, d_p.at(r, n, e), t_d_p.at(r, n, e), state[r],
                                      column.lives, masked);
            t_pair[e] = mine.t_d_s, pair[e] = mine.d_s;
          },
          [&](int n, int r) ATTNC_INLINED { t_d_s.pack(r, n, t_pair), d_s.pack(r, n, pair); });
      has_older = has_last;
      has_last = true;
      k.advance();
      v.advance();
    }
    wgmma::wait<0>(d_q);
    if (!has_last) d_q.fill(0.f);
    const BackwardParams& of = t.backward;
    store_rows_by<kHeadDimQk>(q_tiles().own(), group, of.d_q, of.d_q_stride, rows.b, rows.h, rows.start, f.q_len, d_q,
                              f.scale);
  }
};

/// Runs the roles of a CTA.
template <class Role>
ATTNC_DEVICE void run_as(const TangentParamsSm90& p, const ModArgs& args, unsigned shared, bool with_d_out) {
  initialise<Memory>(shared, [&] {
    ptx::prefetch_tensor_maps(p.q.own, p.q.tangent, p.k.own, p.k.tangent, p.v.own, p.v.tangent, p.d_out);
  });
  run_roles<kProducerRegisters, kConsumerRegisters>(
      [&](int) {
        if (threadIdx.x == 0) Producer{{p, args, shared}}.run(with_d_out);
      },
      [&](int group) ATTNC_INLINED {
        Role{{{p, args, shared}, group}}.run();
      });
}

extern "C" __global__ void __launch_bounds__(threads_of(kWarps), 1)
    attnc_tangent_rows(const __grid_constant__ TangentParamsSm90 p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  run_as<RowsConsumer>(p, args, shared_base(dynamic_shared), false);
}

extern "C" __global__ void __launch_bounds__(threads_of(kWarps), 1)
    attnc_tangent_q(const __grid_constant__ TangentParamsSm90 p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  run_as<GradientConsumer>(p, args, shared_base(dynamic_shared), true);
}

} // namespace attnc::sm90
