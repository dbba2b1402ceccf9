// Outputs that a mod declares, with wgmma and TMA, for sm_90a: the first product of the forward pass.
// reductions_naive.cu has the formulas. Deterministic: no atomics. The mod is generated in plain form.
//
// attnc_reduce_rows: a CTA owns kBlockM rows of Q, 64 per consumer, and walks KV in steps of kBlockN.
// attnc_reduce_columns: a CTA owns kBlockM rows of K of a query head, and walks Q in steps of kBlockN; its product is
// transposed, S^T = K Q^T. So in both, what is reduced lies in the registers of a quad until the end.
//
// A consumer has one product in flight, and none while it reduces. Others keep the tensor cores busy meanwhile: an SM
// has four, in one CTA or in two, or two if heads are wide.
//
//   role          threads        what
//   consumer i    a warpgroup    products, mod, sums
//   producer      the last warp  walks steps; issues TMA loads; writes references of rows of Q
//
//   shared memory   bytes                           lifetime
//   OwnPart         kBlockM rows of Q, or of K      whole kernel
//   WalkRing        kStages tiles of kBlockN rows   a slot: until S of its step is complete
//   References      2 kStages times kBlockN f32     attnc_reduce_columns: until the step after the next begins
//   control words   messages and barriers
//
//   barrier                 completed by                                             waited for by
//   own_full                producer: own rows requested; their bytes                consumers
//   walk.full               producer: tile requested, message and references         consumers
//                           written; its bytes
//   walk.empty              consumers: S of the step complete                        producer
//
// References need no barriers: those of step j are written anew for step j + 2 kStages, whose slot is free once all
// warps have S of step j + kStages, and so have reduced step j.
//
// Messages: the step's first position, and its StepFlags or kNoStep.
//
// All threads have as many registers: a warpgroup of producers would leave too few for products.
//
// Config: kBlockM = 16 kWarps, kWarps 8 or 16; with lists, kBlockM divides their blocks.
//
// Grid: tiles * q_heads * batch, in one dimension. Threads: 32 kWarps + 32; kSharedBytes of dynamic shared memory.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/apply_mod.cuh"
#include "algo/kv_walk.cuh"
#include "algo/reductions.cuh"
#include "algo/warp_roles.cuh"
#include "params_reductions.cuh"
#include "tile/gemm_wgmma.cuh"
#include "tile/request_tile.cuh"
#include "tile/ring.cuh"

namespace attnc::sm90 {

static_assert(kBlockM == 16 * kWarps);
// CTAs of an SM, which has 228 KiB, of which 1 of each CTA is not its own.
constexpr int kCtas = kWarps == 8 && kSharedBytes <= (113 << 10) ? 2 : 1;
constexpr int kThreads = 32 * kWarps + 32;

using OwnTile = SwizzledTile<Element, kBlockM, kHeadDimQk>;
using WalkTile = SwizzledTile<Element, kBlockN, kHeadDimQk>;
using Scores = Fragment<1, kBlockN>;

struct OwnPart : SharedPart<OwnPart, OwnTile::kBytes, 1024> {};
struct WalkRing : RingParts<WalkRing, WalkTile, kStages, 2, Arrivals{.full = 1, .empty = kWarps}> {};
struct References : SharedPart<References, 2 * kStages * kBlockN* int(sizeof(float))> {};
struct OwnFull : BarrierParts<OwnFull, 1, 1> {};
using Memory = SharedMemory<OwnPart, WalkRing::Slots, References, WalkRing::Control, OwnFull>;
static_assert(Memory::kBytes == kSharedBytes, "the host asks for another size: src/families/reductions.cpp");

/// In a message: it is the last message, and there is no tile.
constexpr int kNoStep = 64;

/// What all roles know.
struct Parts {
  const ReductionParamsSm90& launch;
  const ModArgs& args;
  unsigned shared;
  HeadTile own; ///< the rows that the CTA owns
  const ReductionParams& p = launch.base;
  Ring<Memory, WalkRing> ring = {shared};
  int steps = 0; ///< before this one

  ATTNC_DEVICE OwnTile own_tile() const { return {shared + Memory::offset_of<OwnPart>()}; }
  ATTNC_DEVICE unsigned own_full() const { return Barriers<Memory, OwnFull>{shared}[0]; }
  /// Returns the address of the references of this step.
  ATTNC_DEVICE unsigned references() const {
    return shared + Memory::offset_of<References>() + steps % (2 * kStages) * kBlockN * int(sizeof(float));
  }
};

/// A warp.
struct Producer : Parts {
  const int lane = threadIdx.x % 32;
  const bool leads = lane == 0;

  ATTNC_DEVICE void request_own(const TensorMap& map, int h, int b) {
    if (!leads) return;
    ptx::mbarrier_arrive_expect_tx(own_full(), OwnTile::kBytes);
    request_tile(own_tile(), map, own_full(), own.start, h, b);
  }

  /// Requests a step, once fill() has written what it needs besides.
  template <class Fill> ATTNC_DEVICE void request_step(const TensorMap& map, Step step, int h, int b, Fill fill) {
    ring.acquire();
    fill();
    __syncwarp();
    if (leads) {
      ring.write_message({step.start, step.flags});
      ptx::mbarrier_arrive_expect_tx(ring.full(), WalkTile::kBytes);
      request_tile(ring.tile(), map, ring.full(), step.start, h, b);
    }
    __syncwarp();
    ring.advance();
    ++steps;
  }

  ATTNC_DEVICE void finish() {
    ring.acquire();
    if (!leads) return;
    ring.write_message({0, kNoStep});
    ptx::mbarrier_arrive(ring.full());
  }

  ATTNC_DEVICE void walk_along_kv() {
    const auto [b, h, q_start] = own;
    request_own(launch.q, h, b * launch.q_batch_step);
    const auto walk = walk_kv<Mod, kBlockN, kBlockSparse>(p, args, b, h, q_start, min(q_start + kBlockM, p.q_len));
#pragma unroll 1
    for (int i = 0; i < walk.count; ++i)
      request_step(launch.k, walk.at(i), h / p.group, b * launch.k_batch_step, [] {});
    finish();
  }

  ATTNC_DEVICE void walk_along_q() {
    const auto [b, h, kv_start] = own;
    request_own(launch.k, h / p.group, b * launch.k_batch_step);
    const Mod::Head head = Mod::head(args, b, h); // SEAM(head)
    const auto walk = walk_rows<kBlockN, kBlockM>(p, args, head, b, h, kv_start);
    const float* const lse = p.lse + row_of_head<Mod>(p, b, h);
#pragma unroll 1
    for (int i = 0; i < walk.count && kv_start < kv_length<Mod>(p, args, head); ++i) {
      Step step = walk.at(i);
      const Listed listed = listed_at(p, b, h, step.start, kv_start);
      if (listed == Listed::Empty) continue;
      if (kBlockSparse && listed == Listed::Full) step.flags &= ~kStepMasked;
      constexpr int kEach = kBlockN / 32; // rows per lane
      float of_rows[kEach];
#pragma unroll
      for (int j = 0; j < kEach; ++j) of_rows[j] = lse[min(step.start + 32 * j + lane, p.q_len - 1)];
      request_step(launch.q, step, h, b * launch.q_batch_step, [&] {
#pragma unroll
        for (int j = 0; j < kEach; ++j) ptx::st_shared(references() + 4 * (32 * j + lane), reference_of(of_rows[j]));
      });
    }
    finish();
  }
};

/// A warpgroup, which owns 64 rows.
struct Consumer : Parts {
  int group; ///< which consumer, uniform over the warp

  /// Returns the warp's first row among those that the CTA owns.
  ATTNC_DEVICE int warp_row() const { return int(threadIdx.x) / 32 * 16; }

  /// Calls reduce(S, step, asks) for each step. asks: whether some scores may not exist, or be masked.
  template <class Reduce> ATTNC_DEVICE void walk(Reduce reduce) {
    Scores s;
    ptx::mbarrier_wait(own_full(), 0);
#pragma unroll 1
    while (true) {
      ring.wait();
      int message[2];
      ring.read_message(message);
      const Step step = {message[0], message[1]};
      if (step.flags & kNoStep) break;
      wgmma::gemm(s, own_tile().from_row(64 * group), transposed(ring.tile()), 0);
      ring.release();
      if (step.flags & (kStepMasked | kStepTail))
        reduce(s, step, true);
      else
        reduce(s, step, false);
      ring.advance();
      ++steps;
    }
  }

  ATTNC_DEVICE void reduce_rows() {
    const auto [b, h, q_start] = own;
    const Place<1> place(p, args, b, h, q_start, warp_row() + Scores::row(0));
    const int kv_len = kv_length<Mod>(p, args, place.head);
    Reduced<false> reduced[2];
    float reference[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) reference[r] = reference_of(p.lse[row_of_head<Mod>(p, b, h) + place.q_idx(p, r)]);
    walk([&](const Scores& s, Step step, bool asks) ATTNC_INLINED {
#pragma unroll
      for (int n = 0; n < kBlockN / 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int column = place.kv_first(step) + 8 * n + e, kv_idx = asks ? max(min(column, kv_len - 1), 0) : column;
          const Mod::Col col = Mod::col(args, place.head, b, h, kv_idx, float(kv_idx), 0.f); // SEAM(col)
#pragma unroll
          for (int r = 0; r < 2; ++r)
            add_score(reduced[r], args, place.head, place.row[r], col, {b, h, place.position(p, args, r), kv_idx},
                      s.at(r, n, e), p.scale, reference[r], !asks || column < kv_len, asks && step.flags & kStepMasked);
        }
    });
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      reduced[r].join_lanes<1, 4>();
      const int q_idx = q_start + warp_row() + Scores::row(r);
      if (threadIdx.x % 4 == 0 && q_idx < p.q_len) reduced[r].store(p.out, row_of_head<Mod>(p, b, h) + q_idx);
    }
  }

  ATTNC_DEVICE void reduce_columns() {
    const auto [b, h, kv_start] = own;
    const Mod::Head head = Mod::head(args, b, h); // SEAM(head)
    int kv_idx[2];
    Mod::Col col[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      kv_idx[r] = min(kv_start + warp_row() + Scores::row(r), p.kv_len - 1);
      col[r] = Mod::col(args, head, b, h, kv_idx[r], float(kv_idx[r]), 0.f); // SEAM(col)
    }
    Reduced<true> reduced[2];
    walk([&](const Scores& s, Step step, bool asks) ATTNC_INLINED {
#pragma unroll
      for (int n = 0; n < kBlockN / 8; ++n) {
        const float2 of_rows = ptx::ld_shared_float2(references() + 4 * Scores::column(n, 0));
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int q_idx = step.start + Scores::column(n, e);
          const int position = position_of<Mod>(args, head, asks ? min(q_idx, p.q_len - 1) : q_idx);
          const Mod::Row row = Mod::row(args, head, b, h, position, float(position)); // SEAM(row)
#pragma unroll
          for (int r = 0; r < 2; ++r)
            add_score(reduced[r], args, head, row, col[r], {b, h, position, kv_idx[r]}, s.at(r, n, e), p.scale,
                      e ? of_rows.y : of_rows.x, !asks || q_idx < p.q_len, asks && step.flags & kStepMasked);
        }
      }
    });
    const int kv_len = kv_length<Mod>(p, args, head);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      reduced[r].join_lanes<1, 4>();
      const int column = kv_start + warp_row() + Scores::row(r);
      if (column >= kv_len) reduced[r] = {}; // of rows behind the sequence's
      if (threadIdx.x % 4 == 0 && column < p.kv_len)
        reduced[r].store(p.out, ((long long)b * p.q_heads + h) * p.kv_len + column);
    }
  }
};

/// Computes the rows that the CTA owns: calls produce(warp's role) or consume(role).
template <class Produce, class Consume>
ATTNC_DEVICE void compute(const ReductionParamsSm90& p, const ModArgs& args, HeadTile own, Produce produce,
                          Consume consume) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  const Parts parts{p, args, shared_base(dynamic_shared), own};
  initialise<Memory>(parts.shared, [&] { ptx::prefetch_tensor_maps(p.q, p.k); });
  if (__shfl_sync(0xffffffffu, threadIdx.x / 32, 0) == kWarps)
    produce(Producer{parts});
  else // NOTE: by a shuffle, ptxas has descriptors in uniform registers, of which score() leaves too few
    consume(Consumer{parts, kIsProduct ? __shfl_sync(0xffffffffu, int(threadIdx.x) / 128, 0) : int(threadIdx.x) / 128});
}

extern "C" __global__ void __launch_bounds__(kThreads, kCtas)
    attnc_reduce_rows(const __grid_constant__ ReductionParamsSm90 p, const __grid_constant__ ModArgs args) {
  compute(
      p, args, q_tile_from_end<Mod, kBlockM>(p.base, args, blockIdx.x),
      [](Producer producer) { producer.walk_along_kv(); },
      [](Consumer consumer) ATTNC_INLINED { consumer.reduce_rows(); });
}

extern "C" __global__ void __launch_bounds__(kThreads, kCtas)
    attnc_reduce_columns(const __grid_constant__ ReductionParamsSm90 p, const __grid_constant__ ModArgs args) {
  const int tiles = (p.base.kv_len + kBlockM - 1) / kBlockM, head = blockIdx.x / tiles, heads = p.base.q_heads;
  compute(
      p, args, {head / heads, head % heads, int(blockIdx.x) % tiles * kBlockM},
      [](Producer producer) { producer.walk_along_q(); },
      [](Consumer consumer) ATTNC_INLINED { consumer.reduce_columns(); });
}

} // namespace attnc::sm90
