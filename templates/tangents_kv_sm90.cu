// Tangents of dK and dV with wgmma and TMA, for sm_90a. algo/tangents.cuh has the formulas. Runs after
// attnc_tangent_rows of tangents_q_sm90.cu. Deterministic: no atomics.
//
// A CTA owns kBlockN = 128 rows of K and V, 64 per consumer, and walks Q in steps of kBlockM rows, for all query heads
// of its KV head (and for all batches if K and V are broadcast). Its eight products are transposed, so that the
// registers of (P f)^T., dS^T. and dS^T are A operands.
//
//   a consumer's loop     tensor cores                            other units
//                         S^T(j), S^T.(j); dK., dV. of j-1
//                         dP^T(j), dP^T.(j)
//                         those of the other consumer             mod, gradients of j
//
//   role          threads             registers   what
//   producer      warp 0              24 or 40    walks steps; issues TMA loads; fills tables of rows
//   consumer i    a warpgroup         240 or 232  products, mod; stores its rows
//
//   shared memory   bytes                                            lifetime
//   KPart, VPart    2 tiles of kBlockN rows each: K, K., V, V.       whole kernel; then staging of dK., dV.
//   QRing           kQStages times 2 tiles of kBlockM x kHeadDimQk   a slot: Q, Q. until dK. of the step is complete
//   ORing           kStages tiles of kBlockM x kHeadDimV, dO         a slot: until dV. of the step is complete
//   Rows            kQStages times 5 floats for each of kBlockM rows as the slot of Q
//   control words   messages and barriers
//
//   barrier           completed by                                          waited for by
//   kv_full           producer: K, K., V, V. requested; their bytes         consumers
//   q.full            producer: Q, Q. requested, message and rows           consumers
//                     written; their bytes
//   q.empty           consumers: dK. of the step complete                   producer
//   o.full, o.empty   producer: dO requested, its bytes; consumers: dV.     consumers, producer
//                     of the step complete
//   GroupBarriers     consumer i: its products with K and V are complete    consumer i
//
// Messages with Q: the step's first row, StepFlags or kNoStep, b, h. The first and the last round compute garbage, as
// in tangents_q_sm90.cu.
//
// Grid: kv tiles * kv_heads * kv_batch, in one dimension. Threads: 128 + 32 kWarps; kSharedBytes of dynamic shared
// memory. d_k and d_v have 16-byte aligned rows. kBlockM = 32.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/q_walk.cuh"
#include "algo/tangents_sm90.cuh"

namespace attnc::sm90 {

static_assert(kBlockM == 32, "a lane of the producer has a row");

/// What the rows of a step have, by member of RowState.
struct RowTable {
  static constexpr int kBytes = 5 * 4 * kBlockM;
  unsigned base;

  ATTNC_DEVICE void write(int row, const RowState& x) const {
    const float members[5] = {x.bias, x.share, x.delta, x.t_lse, x.t_delta};
#pragma unroll
    for (int i = 0; i < 5; ++i) ptx::st_shared(base + 4 * (i * kBlockM + row), members[i]);
  }
  /// Reads rows `row` and row + 1. `row` is even.
  ATTNC_DEVICE void read(int row, RowState (&x)[2]) const {
    float2 members[5];
#pragma unroll
    for (int i = 0; i < 5; ++i) members[i] = ptx::ld_shared_float2(base + 4 * (i * kBlockM + row));
    x[0] = {members[0].x, members[1].x, members[2].x, members[3].x, members[4].x};
    x[1] = {members[0].y, members[1].y, members[2].y, members[3].y, members[4].y};
  }
};

struct KPart : SharedPart<KPart, KTiles::kBytes, 1024> {};
struct VPart : SharedPart<VPart, VTiles::kBytes, 1024> {};
struct QRing : RingParts<QRing, QTiles, kQStages, 4, Arrivals{.full = 1, .empty = kWarps}> {};
struct ORing : RingParts<ORing, OTile, kStages, 0, Arrivals{.full = 1, .empty = kWarps}> {};
struct Rows : SharedPart<Rows, kQStages * RowTable::kBytes> {};
struct KvFull : BarrierParts<KvFull, 1, 1> {};
using Memory = SharedMemory<KPart, VPart, QRing::Slots, ORing::Slots, Rows, QRing::Control, ORing::Control, KvFull>;
static_assert(Memory::kBytes == kSharedBytes, "the host asks for another size: src/families/tangents.cpp");

/// What all roles know.
struct Parts {
  const TangentParamsSm90& p;
  const ModArgs& args;
  unsigned shared;
  const TangentParams& t = p.base;
  const BackwardParams& of = t.backward;
  const ForwardParams& f = of.forward;
  const HeadTile columns = kv_tile_at<Mod, kBlockN>(f, args, blockIdx.x);
  Ring<Memory, QRing> q = {shared};
  Ring<Memory, ORing> o = {shared};

  ATTNC_DEVICE KTiles k_tiles() const { return {shared + Memory::offset_of<KPart>()}; }
  ATTNC_DEVICE VTiles v_tiles() const { return {shared + Memory::offset_of<VPart>()}; }
  ATTNC_DEVICE unsigned kv_full() const { return Barriers<Memory, KvFull>{shared}[0]; }
  ATTNC_DEVICE RowTable table() const { return {shared + Memory::offset_of<Rows>() + q.slot * RowTable::kBytes}; }
};

/// A warp.
struct Producer : Parts {
  const bool leads = threadIdx.x == 0;

  ATTNC_DEVICE void request_step(Step step, int b, int h) {
    const int q_idx = step.start + int(threadIdx.x);
    const RowState state = row_state(t, row_of_all(f, b, h, min(q_idx, f.q_len - 1)), q_idx < f.q_len);
    q.acquire();
    table().write(int(threadIdx.x), state);
    __syncwarp();
    if (leads) {
      q.write_message({step.start, step.flags, b, h});
      ptx::mbarrier_arrive_expect_tx(q.full(), QTiles::kBytes);
      request(q.tile(), p.q, q.full(), step.start, h, b);
    }
    o.acquire();
    if (leads) {
      ptx::mbarrier_arrive_expect_tx(o.full(), OTile::kBytes);
      request_tile(o.tile(), p.d_out, o.full(), step.start, h, b * p.d_out_batch_step);
    }
    __syncwarp();
    q.advance();
    o.advance();
  }

  ATTNC_DEVICE void run() {
    const auto [kv_b, kv_head, kv_start] = columns;
    if (leads) {
      ptx::mbarrier_arrive_expect_tx(kv_full(), KTiles::kBytes + VTiles::kBytes);
      request(k_tiles(), p.k, kv_full(), kv_start, kv_head, kv_b);
      request(v_tiles(), p.v, kv_full(), kv_start, kv_head, kv_b);
    }
    const int heads = (of.kv_batch == f.batch ? 1 : f.batch) * f.group;
#pragma unroll 1
    for (int i = 0; i < heads; ++i) {
      const int b = kv_b + i / f.group, h = kv_head * f.group + i % f.group;
      const auto walk = walk_q<Mod, kBlockM, kBlockSparse>(of, args, b, h, kv_start, min(kv_start + kBlockN, f.kv_len));
#pragma unroll 1
      for (int j = 0; j < walk.count; ++j) request_step(walk.at(j), b, h);
    }
    q.acquire();
    if (leads) {
      q.write_message({0, kNoStep, -1, -1});
      ptx::mbarrier_arrive(q.full());
    }
  }
};

/// A warpgroup, which owns 64 rows.
struct Consumer : Parts {
  using Scores = Fragment<1, kBlockM>; // transposed: rows along KV
  using Operand = PackedFragment<Element, 1, kBlockM>;

  int group;          ///< which consumer, uniform over the warp
  int b = -1, h = -1; ///< of the last step
  Mod::Head head;
  Mod::Col col[2];
  int kv_idx[2];

  ATTNC_DEVICE void take_head(int of_b, int of_h) {
    b = of_b, h = of_h;
    head = Mod::head(args, b, h); // SEAM(head)
#pragma unroll
    for (int r = 0; r < 2; ++r) col[r] = Mod::col(args, head, b, h, kv_idx[r], float(kv_idx[r]), 0.f); // SEAM(col)
  }

  /// Makes of S^T, S^T., dP^T and dP^T. the A operands.
  ATTNC_DEVICE void differentiate(Step step, const RowTable& rows, const Scores& s, const Scores& t_s,
                                  const Scores& d_p, const Scores& t_d_p, Operand& t_d_s, Operand& d_s,
                                  Operand& t_p) const {
    const auto call = [&](bool masked) ATTNC_INLINED {
#pragma unroll
      for (int n = 0; n < kBlockM / 8; ++n) {
        const int first = 8 * n + Scores::first_column();
        RowState state[2];
        rows.read(first, state);
        int position[2];
        Mod::Row row[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          position[e] = position_of<Mod>(args, head, min(step.start + first + e, f.q_len - 1));
          row[e] = Mod::row(args, head, b, h, position[e], float(position[e])); // SEAM(row)
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float of_t_d_s[2], of_d_s[2], of_t_p[2];
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const MovingGradient mine(args, head, row[e], col[r], {b, h, position[e], kv_idx[r]},
                                      s.at(r, n, e) * f.scale, t_s.at(r, n, e) * f.scale, d_p.at(r, n, e),
                                      t_d_p.at(r, n, e), state[e], true, masked);
            of_t_d_s[e] = mine.t_d_s, of_d_s[e] = mine.d_s, of_t_p[e] = mine.t_p;
          }
          t_d_s.pack(r, n, of_t_d_s), d_s.pack(r, n, of_d_s), t_p.pack(r, n, of_t_p);
        }
      }
    };
    if (step.flags & kStepMasked)
      call(true);
    else
      call(false);
  }

  ATTNC_DEVICE void run() {
    const auto [kv_b, kv_head, kv_start] = columns;
#pragma unroll
    for (int r = 0; r < 2; ++r)
      kv_idx[r] = min(kv_start + 64 * group + int(threadIdx.x) / 32 % 4 * 16 + Scores::row(r), f.kv_len - 1);
    const auto k = k_tiles().own().from_row(64 * group), t_k = k_tiles().tangent().from_row(64 * group);
    const auto v = v_tiles().own().from_row(64 * group), t_v = v_tiles().tangent().from_row(64 * group);
    Scores s, t_s, d_p, t_d_p;
    Operand t_d_s, d_s, t_p;
    Fragment<1, kQColumns> d_k;
    Fragment<1, kVColumns> d_v;
    bool has_last = false, has_older = false; // a step before this one, and before that
    ptx::mbarrier_wait(kv_full(), 0);
#pragma unroll 1
    while (true) {
      q.wait();
      int message[4];
      q.read_message(message);
      const Step step = {message[0], message[1]};
      const QTiles last = q.tile_of(q.slot_before());
      const OTile last_o = o.tile_of(o.slot_before());
      wgmma::touch(s), wgmma::touch(t_s), wgmma::touch(d_k), wgmma::touch(d_v);
      ptx::wgmma_fence();
      wgmma::start_gemm(s, k, transposed(q.tile().own()), 0);
      wgmma::start_gemm(t_s, t_k, transposed(q.tile().own()), 0);
      wgmma::start_gemm(t_s, k, transposed(q.tile().tangent()), 1);
      ptx::wgmma_commit_group();
      wgmma::start_gemm(d_k, t_d_s, last.own(), has_older);
      wgmma::start_gemm(d_k, d_s, last.tangent(), 1);
      wgmma::start_gemm(d_v, t_p, last_o, has_older);
      ptx::wgmma_commit_group();
      if (step.flags & kNoStep) break;
      if (message[2] != b || message[3] != h) [[unlikely]]
        take_head(message[2], message[3]);
      o.wait();
      wgmma::wait<0>(s, t_s, d_k, d_v);
      q.release_before(has_last);
      o.release_before(has_last);
      wgmma::touch(d_p), wgmma::touch(t_d_p);
      ptx::wgmma_fence();
      wgmma::start_gemm(d_p, v, transposed(o.tile()), 0);
      wgmma::start_gemm(t_d_p, t_v, transposed(o.tile()), 0);
      ptx::wgmma_commit_group();
      wgmma::wait<0>(d_p, t_d_p);
      differentiate(step, table(), s, t_s, d_p, t_d_p, t_d_s, d_s, t_p);
      has_older = has_last;
      has_last = true;
      q.advance();
      o.advance();
    }
    wgmma::wait<0>(d_k, d_v);
    if (!has_last) d_k.fill(0.f), d_v.fill(0.f);
    store_rows_by<kHeadDimQk>(k_tiles().own(), group, of.d_k, of.d_k_stride, kv_b, kv_head, kv_start, f.kv_len, d_k,
                              f.scale);
    store_rows_by<kHeadDimV>(v_tiles().own(), group, of.d_v, of.d_v_stride, kv_b, kv_head, kv_start, f.kv_len, d_v,
                             1.f);
  }
};

extern "C" __global__ void __launch_bounds__(threads_of(kWarps), 1)
    attnc_tangent_kv(const __grid_constant__ TangentParamsSm90 p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  const unsigned shared = shared_base(dynamic_shared);
  initialise<Memory>(shared, [&] {
    ptx::prefetch_tensor_maps(p.q.own, p.q.tangent, p.k.own, p.k.tangent, p.v.own, p.v.tangent, p.d_out);
  });
  run_roles<kProducerRegisters, kConsumerRegisters>(
      [&](int warp) {
        if (warp == 0) Producer{{p, args, shared}}.run();
      },
      [&](int group) ATTNC_INLINED {
        Consumer{{p, args, shared}, group}.run();
      });
}

} // namespace attnc::sm90
