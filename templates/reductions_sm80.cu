// Outputs that a mod declares, with mma.sync and cp.async, for sm_80 and later: the product of the forward pass,
// without V. reductions_naive.cu has the formulas. Deterministic: no atomics. The mod is generated in plain form.
//
// attnc_reduce_rows: a CTA owns kBlockM rows of Q, 16 per warp, and walks KV in steps of kBlockN. attnc_reduce_columns:
// a CTA owns kBlockN rows of K of a query head, 16 per warp, and walks Q in steps of kBlockM; its product is
// transposed. All warps have one role. kBlockM equals kBlockN.
//
//   shared memory   bytes                        lifetime
//   OwnPart         kBlockM rows of Q, or of K   whole kernel
//   WalkPart        2 slots of as many of K, Q   a step, and the one before, in which it is copied
//   References      2 slots of kBlockM f32       attnc_reduce_columns: as WalkPart
//
//   barrier                    when              what it guarantees
//   cp.async, __syncthreads    begin of a step   its tile is ready, and the tile of the step before is free
//
// Grid: tiles * q_heads * batch, in one dimension. Threads: 32 kWarps, kBlockM is 16 kWarps; kSharedBytes of dynamic
// shared memory.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/apply_mod.cuh"
#include "algo/kv_walk.cuh"
#include "algo/reductions.cuh"
#include "params_reductions.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/copy_tile.cuh"
#include "tile/gemm_mma.cuh"
#include "tile/shared_memory.cuh"

namespace attnc::sm80 {

constexpr int kThreads = 32 * kWarps;
static_assert(kBlockM == kBlockN && kBlockM == 16 * kWarps);

using Tile = PaddedTile<Element, kBlockM, kHeadDimQk>;
using Scores = Fragment<1, kBlockM>;
struct OwnPart : SharedPart<OwnPart, Tile::kBytes> {};
struct WalkPart : SharedPart<WalkPart, 2 * Tile::kBytes> {};
struct References : SharedPart<References, 2 * kBlockM* int(sizeof(float))> {};
using Memory = SharedMemory<OwnPart, WalkPart, References>;
static_assert(Memory::kBytes == kSharedBytes, "the host asks for another size: src/families/reductions.cpp");

/// The rows of Q, or of K, of a head.
struct Rows {
  const Element* first;
  long long stride;
  int length;
  bool vectors;

  ATTNC_DEVICE Rows(const void* base, const Strides& strides, int b, int h, int length, bool vectors)
      : first((const Element*)base + b * strides.batch + h * strides.head), stride(strides.row), length(length),
        vectors(vectors) {}
  ATTNC_DEVICE void copy(Tile tile, int start) const {
    copy_in<kThreads>(tile, first, stride, start, length, vectors);
    ptx::cp_async_commit_group();
  }
};

ATTNC_DEVICE void wait_for_tiles() {
  ptx::cp_async_wait_group<0>();
  __syncthreads();
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_reduce_rows(const __grid_constant__ ReductionParams p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  const unsigned shared = ptx::shared_address(dynamic_shared);
  const auto [b, h, q_start] = q_tile_from_end<Mod, kBlockM>(p, args, blockIdx.x);
  const Tile own = {shared + Memory::offset_of<OwnPart>()};
  const auto slot = [&](int i) { return Tile{shared + Memory::offset_of<WalkPart>() + i % 2 * Tile::kBytes}; };
  const int warp_row = int(threadIdx.x) / 32 * 16;
  const Place<1> place(p, args, b, h, q_start, warp_row + Scores::row(0));
  const int kv_len = kv_length<Mod>(p, args, place.head);
  const Rows keys(p.k, p.k_stride, b, h / p.group, kv_len, p.vectors);
  const auto walk = walk_kv<Mod, kBlockN, kBlockSparse>(p, args, b, h, q_start, min(q_start + kBlockM, p.q_len));
  Rows(p.q, p.q_stride, b, h, p.q_len, p.vectors).copy(own, q_start);
  if (walk.count > 0) keys.copy(slot(0), walk.start_of(0));
  Reduced<false> reduced[2];
  float reference[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) reference[r] = reference_of(p.lse[row_of_head<Mod>(p, b, h) + place.q_idx(p, r)]);

#pragma unroll 1
  for (int i = 0; i < walk.count; ++i) {
    const Step step = walk.at(i);
    wait_for_tiles();
    if (i + 1 < walk.count) keys.copy(slot(i + 1), walk.start_of(i + 1));
    Scores s;
    s.fill(0.f);
    mma::gemm<kTf32>(s, own.rows<16>(warp_row), transposed(slot(i)));
#pragma unroll
    for (int n = 0; n < kBlockN / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = place.kv_first(step) + 8 * n + e, kv_idx = max(min(column, kv_len - 1), 0);
        const Mod::Col col = Mod::col(args, place.head, b, h, kv_idx, float(kv_idx), 0.f); // SEAM(col)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          add_score(reduced[r], args, place.head, place.row[r], col, {b, h, place.position(p, args, r), kv_idx},
                    s.at(r, n, e), p.scale, reference[r], column < kv_len, step.flags & kStepMasked);
      }
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    reduced[r].join_lanes<1, 4>();
    const int q_idx = q_start + warp_row + Scores::row(r);
    if (threadIdx.x % 4 == 0 && q_idx < p.q_len) reduced[r].store(p.out, row_of_head<Mod>(p, b, h) + q_idx);
  }
  ptx::cp_async_wait_group<0>(); // copies end before the CTA does
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_reduce_columns(const __grid_constant__ ReductionParams p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  const unsigned shared = ptx::shared_address(dynamic_shared);
  const int tiles = (p.kv_len + kBlockN - 1) / kBlockN, kv_start = blockIdx.x % tiles * kBlockN;
  const int b = blockIdx.x / tiles / p.q_heads, h = blockIdx.x / tiles % p.q_heads;
  const Tile own = {shared + Memory::offset_of<OwnPart>()};
  const auto slot = [&](int i) { return Tile{shared + Memory::offset_of<WalkPart>() + i % 2 * Tile::kBytes}; };
  float* const references = (float*)(dynamic_shared + Memory::offset_of<References>());
  const int warp_row = int(threadIdx.x) / 32 * 16;
  const Mod::Head head = Mod::head(args, b, h); // SEAM(head)
  const int kv_len = kv_length<Mod>(p, args, head);
  int kv_idx[2];
  Mod::Col col[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    kv_idx[r] = min(kv_start + warp_row + Scores::row(r), p.kv_len - 1);
    col[r] = Mod::col(args, head, b, h, kv_idx[r], float(kv_idx[r]), 0.f); // SEAM(col)
  }
  const Rows queries(p.q, p.q_stride, b, h, p.q_len, p.vectors);
  const auto walk = walk_rows<kBlockM, kBlockN>(p, args, head, b, h, kv_start);
  const auto listed = [&](int i) { return listed_at(p, b, h, walk.start_of(i), kv_start); };
  const auto next = [&](int i) { // the first step from i on whose block is not empty
    while (i < walk.count && (kv_start >= kv_len || listed(i) == Listed::Empty)) ++i;
    return i;
  };
  const auto copy = [&](int i, int into) {
    const int start = walk.start_of(i);
    queries.copy(slot(into), start);
    if (threadIdx.x < kBlockM)
      references[into % 2 * kBlockM + threadIdx.x] =
          reference_of(p.lse[row_of_head<Mod>(p, b, h) + min(start + int(threadIdx.x), p.q_len - 1)]);
  };
  Rows(p.k, p.k_stride, b, h / p.group, kv_len, p.vectors).copy(own, kv_start);
  int i = next(0);
  if (i < walk.count) copy(i, 0);
  Reduced<true> reduced[2];

#pragma unroll 1
  for (int done = 0; i < walk.count; ++done) {
    const Step step = walk.at(i);
    const bool masked = kBlockSparse ? Mod::kHasMaskMod && listed(i) == Listed::Partial : step.flags & kStepMasked;
    wait_for_tiles();
    i = next(i + 1);
    if (i < walk.count) copy(i, done + 1);
    Scores s;
    s.fill(0.f);
    mma::gemm<kTf32>(s, own.rows<16>(warp_row), transposed(slot(done)));
#pragma unroll
    for (int n = 0; n < kBlockM / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int q_idx = step.start + Scores::column(n, e);
        const int position = position_of<Mod>(args, head, min(q_idx, p.q_len - 1));
        const Mod::Row row = Mod::row(args, head, b, h, position, float(position)); // SEAM(row)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          add_score(reduced[r], args, head, row, col[r], {b, h, position, kv_idx[r]}, s.at(r, n, e), p.scale,
                    references[done % 2 * kBlockM + Scores::column(n, e)],
                    q_idx < p.q_len && kv_start + warp_row + Scores::row(r) < kv_len, masked);
      }
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    reduced[r].join_lanes<1, 4>();
    const int column = kv_start + warp_row + Scores::row(r);
    if (threadIdx.x % 4 == 0 && column < p.kv_len)
      reduced[r].store(p.out, ((long long)b * p.q_heads + h) * p.kv_len + column);
  }
  ptx::cp_async_wait_group<0>(); // copies end before the CTA does
}

} // namespace attnc::sm80
