// Tangents of attention and of dQ with mma.sync and cp.async, for sm_80 and later. algo/tangents.cuh has the formulas.
// Deterministic: no atomics.
//
// Two kernels, whose warps all have one role. A CTA owns kBlockM rows of Q, 16 per warp, and walks KV in steps of
// kBlockN columns. attnc_tangent_rows writes out., lse. and per row the sum of exp(mod(s) - lse), delta and delta.;
// five products. attnc_tangent_q runs after it and writes d_q.; seven products.
//
//   shared memory                   bytes                            lifetime
//   QPart, TqPart, OPart            kBlockM rows of Q, of Q., of dO  whole kernel; then staging of the result
//   KPart, TkPart, VPart, TvPart    kBlockN rows of K, K., V, V.     a step
//
//   barrier                    when                     what it guarantees
//   __syncthreads              begin of a step          the tiles of the step before are free
//   cp.async, __syncthreads    before its products      the tiles of this step are ready
//   cp.async, __syncthreads    after the last step      the tiles of Q are free, or their copies have ended
//
// Grid: q tiles * q_heads * batch, in one dimension. Threads: 32 kWarps, kBlockM is 16 kWarps; kSharedBytes of dynamic
// shared memory.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/kv_walk.cuh"
#include "algo/tangents_mma.cuh"

namespace attnc::sm80 {

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_tangent_rows(const __grid_constant__ TangentParams t, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  const Tiles tiles = {t, ptx::shared_address(dynamic_shared)};
  using Scores = Fragment<1, kBlockN>;
  const BackwardParams& p = t.backward;
  const ForwardParams& f = p.forward;
  const auto [b, h, q_start] = q_tile_from_end<Mod, kBlockM>(f, args, blockIdx.x);
  const int warp_row = int(threadIdx.x) / 32 * 16;
  tiles.load_q(b, h, q_start);
  const Place<1> place(f, args, b, h, q_start, warp_row + Scores::row(0));
  float bias[2], sums[2] = {}, t_sums[2] = {}; // the sums are those of the quad
  float origin[2] = {}; // what tangents of scores are counted from: their mean in the first step that lives. So what
                        // all scores of a row have in common does not cancel in 16 bits
#pragma unroll
  for (int r = 0; r < 2; ++r) bias[r] = bias_of(f.lse[row_of_all(f, b, h, place.q_idx(f, r))]);

  const auto walk = walk_kv<Mod, kBlockN, kBlockSparse>(f, args, b, h, q_start, min(q_start + kBlockM, f.q_len));
  Fragment<1, VTile::kColumns> sum;
  sum.fill(0.f);
#pragma unroll 1
  for (int i = 0; i < walk.count; ++i) {
    const Step step = walk.at(i);
    __syncthreads();
    tiles.load_kv(b, h / f.group, step.start);
    wait_for_tiles();
    Scores s, t_s;
    s.fill(0.f);
    t_s.fill(0.f);
    mma::gemm<kTf32>(s, tiles.q().rows<16>(warp_row), transposed(tiles.k()));
    mma::gemm<kTf32>(t_s, tiles.t_q().rows<16>(warp_row), transposed(tiles.k()));
    mma::gemm<kTf32>(t_s, tiles.q().rows<16>(warp_row), transposed(tiles.t_k()));
    // s: S, then mod(S)., then P f (mod(S). - origin); t_s: S., then P f
    float weights[2] = {}, of_step[2] = {};
#pragma unroll
    for (int n = 0; n < kBlockN / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const Column column(f, args, place, place.kv_first(step) + 8 * n + e);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const Coord at = {b, h, place.position(f, args, r), column.kv_idx};
          const MovingScore score(args, place.head, place.row[r], column.col, at, s.at(r, n, e) * f.scale,
                                  t_s.at(r, n, e) * f.scale, bias[r], column.lives, step.flags & kStepMasked);
          weights[r] += score.weight, of_step[r] += score.weight * score.t_score;
          s.at(r, n, e) = score.t_score, t_s.at(r, n, e) = score.weight * score.factor;
        }
      }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float all = quad_sum(weights[r]), t_all = quad_sum(of_step[r]);
      if (sums[r] == 0.f && all != 0.f) origin[r] = t_all * ptx::rcp(all);
      sums[r] += all, t_sums[r] += t_all;
    }
#pragma unroll
    for (int n = 0; n < kBlockN / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e)
#pragma unroll
        for (int r = 0; r < 2; ++r) s.at(r, n, e) = (s.at(r, n, e) - origin[r]) * t_s.at(r, n, e);
    mma::gemm<kTf32>(sum, s, tiles.v());
    mma::gemm<kTf32>(sum, t_s, tiles.t_v());
  }

  wait_for_tiles();
  // out. = sum - (lse. - origin) out
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const MovingSink sink(args, place, r, place.position(f, args, r), bias[r]);
    const float all = sums[r] + sink.weight, share = all == 0.f ? 0.f : ptx::rcp(all);
    const float t_lse = (t_sums[r] + sink.weight * sink.t_sink) * share;
    const int q_idx = place.q_idx(f, r);
    const Element* out = head_of(f.out, f.out_stride, b, h) + q_idx * f.out_stride.row;
    const Element* d_out = tiles.d_out().elements(warp_row + Scores::row(r));
    float delta = 0.f, t_delta = 0.f;
#pragma unroll
    for (int n = 0; n < VTile::kColumns / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = Fragment<1, VTile::kColumns>::column(n, e);
        if (column >= kHeadDimV) continue;
        const float o = to_float(out[column]), d = to_float(d_out[column]);
        float& x = sum.at(r, n, e);
        x = x * share - (t_lse - origin[r]) * o;
        delta += d * o, t_delta += d * x;
      }
    delta = quad_sum(delta), t_delta = quad_sum(t_delta);
    const long long index = row_of_all(f, b, h, q_idx);
    if (threadIdx.x % 4 == 0 && q_start + warp_row + Scores::row(r) < f.q_len) {
      p.row_sums[index] = all;
      p.delta[index] = delta - (p.d_lse ? p.d_lse[index] : 0.f);
      t.t_lse[index] = t_lse, t.t_delta[index] = t_delta;
    }
  }
  __syncwarp();
  Element* to = (Element*)head_of(t.t_out, t.t_out_stride, b, h);
  mma::store_rows(tiles.d_out().rows<16>(warp_row), sum, 1.f, to, t.t_out_stride.row, q_start + warp_row, f.q_len,
                  f.vectors);
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_tangent_q(const __grid_constant__ TangentParams t, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  const Tiles tiles = {t, ptx::shared_address(dynamic_shared)};
  using Scores = Fragment<1, kBlockN>;
  const BackwardParams& p = t.backward;
  const ForwardParams& f = p.forward;
  const auto [b, h, q_start] = q_tile_from_end<Mod, kBlockM>(f, args, blockIdx.x);
  const int warp_row = int(threadIdx.x) / 32 * 16;
  tiles.load_q(b, h, q_start);
  const Place<1> place(f, args, b, h, q_start, warp_row + Scores::row(0));
  const RowState rows[2] = {row_state(t, row_of_all(f, b, h, place.q_idx(f, 0)), true),
                            row_state(t, row_of_all(f, b, h, place.q_idx(f, 1)), true)};
  const auto walk = walk_kv<Mod, kBlockN, kBlockSparse>(f, args, b, h, q_start, min(q_start + kBlockM, f.q_len));
  Fragment<1, KTile::kColumns> d_q;
  d_q.fill(0.f);
#pragma unroll 1
  for (int i = 0; i < walk.count; ++i) {
    const Step step = walk.at(i);
    __syncthreads();
    tiles.load_kv(b, h / f.group, step.start);
    wait_for_tiles();
    Scores s, t_s, d_p, t_d_p;
    s.fill(0.f), t_s.fill(0.f), d_p.fill(0.f), t_d_p.fill(0.f);
    mma::gemm<kTf32>(s, tiles.q().rows<16>(warp_row), transposed(tiles.k()));
    mma::gemm<kTf32>(t_s, tiles.t_q().rows<16>(warp_row), transposed(tiles.k()));
    mma::gemm<kTf32>(t_s, tiles.q().rows<16>(warp_row), transposed(tiles.t_k()));
    mma::gemm<kTf32>(d_p, tiles.d_out().rows<16>(warp_row), transposed(tiles.v()));
    mma::gemm<kTf32>(t_d_p, tiles.d_out().rows<16>(warp_row), transposed(tiles.t_v()));
    // s: S, then dS.; t_s: S., then dS
#pragma unroll
    for (int n = 0; n < kBlockN / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const Column column(f, args, place, place.kv_first(step) + 8 * n + e);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const Coord at = {b, h, place.position(f, args, r), column.kv_idx};
          const MovingGradient mine(args, place.head, place.row[r], column.col, at, s.at(r, n, e) * f.scale,
                                    t_s.at(r, n, e) * f.scale, d_p.at(r, n, e), t_d_p.at(r, n, e), rows[r],
                                    column.lives, step.flags & kStepMasked);
          s.at(r, n, e) = mine.t_d_s, t_s.at(r, n, e) = mine.d_s;
        }
      }
    mma::gemm<kTf32>(d_q, s, tiles.k());
    mma::gemm<kTf32>(d_q, t_s, tiles.t_k());
  }
  wait_for_tiles();
  Element* to = (Element*)head_of(p.d_q, p.d_q_stride, b, h);
  mma::store_rows(tiles.q().rows<16>(warp_row), d_q, f.scale, to, p.d_q_stride.row, q_start + warp_row, f.q_len,
                  f.vectors);
}

} // namespace attnc::sm80
