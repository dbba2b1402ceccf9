// Tangents of dK and dV with mma.sync and cp.async, for sm_80 and later. algo/tangents.cuh has the formulas. Runs after
// attnc_tangent_rows of tangents_q_sm80.cu. Deterministic: no atomics.
//
// A CTA owns kBlockN rows of K and V, 16 per warp, and walks Q in steps of kBlockM rows, for all query heads of its KV
// head (and for all batches if K and V are broadcast). Its eight products are transposed, so that the registers of P^T
// and dS^T are A operands. All warps have the same role.
//
//   shared memory                   bytes                            lifetime
//   KPart, TkPart, VPart, TvPart    kBlockN rows of K, K., V, V.     whole kernel; then staging of dK., dV.
//   QPart, TqPart, OPart            kBlockM rows of Q, of Q., of dO  a step
//
//   barrier                    when                     what it guarantees
//   __syncthreads              begin of a step          the tiles of the step before are free
//   cp.async, __syncthreads    before its products      the tiles of this step are ready
//   cp.async, __syncthreads    after the last step      the tiles of K and V are free, or their copies have ended
//
// Grid: kv tiles * kv_heads * kv_batch, in one dimension. Threads: 32 kWarps, kBlockN is 16 kWarps; kSharedBytes of
// dynamic shared memory.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/q_walk.cuh"
#include "algo/tangents_mma.cuh"

namespace attnc::sm80 {

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_tangent_kv(const __grid_constant__ TangentParams t, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  const Tiles tiles = {t, ptx::shared_address(dynamic_shared)};
  using Scores = Fragment<1, kBlockM>; // transposed: rows along KV
  const BackwardParams& p = t.backward;
  const ForwardParams& f = p.forward;
  const auto [kv_b, kv_head, kv_start] = kv_tile_at<Mod, kBlockN>(f, args, blockIdx.x);
  const int warp_row = int(threadIdx.x) / 32 * 16;
  tiles.load_kv(kv_b, kv_head, kv_start);
  Fragment<1, KTile::kColumns> d_k;
  Fragment<1, VTile::kColumns> d_v;
  d_k.fill(0.f);
  d_v.fill(0.f);
  const int batches = p.kv_batch == f.batch ? 1 : f.batch;
#pragma unroll 1
  for (int i = 0; i < batches * f.group; ++i) {
    const int b = kv_b + i / f.group, h = kv_head * f.group + i % f.group;
    const Mod::Head head = Mod::head(args, b, h); // SEAM(head)
    Mod::Col col[2];
    int kv_idx[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      kv_idx[r] = min(kv_start + warp_row + Scores::row(r), f.kv_len - 1);
      col[r] = Mod::col(args, head, b, h, kv_idx[r], float(kv_idx[r]), 0.f); // SEAM(col)
    }
    const auto walk = walk_q<Mod, kBlockM, kBlockSparse>(p, args, b, h, kv_start, min(kv_start + kBlockN, f.kv_len));
#pragma unroll 1
    for (int j = 0; j < walk.count; ++j) {
      const Step step = walk.at(j);
      __syncthreads();
      tiles.load_q(b, h, step.start);
      wait_for_tiles();
      Scores s, t_s, d_p, t_d_p;
      s.fill(0.f), t_s.fill(0.f), d_p.fill(0.f), t_d_p.fill(0.f);
      mma::gemm<kTf32>(s, tiles.k().rows<16>(warp_row), transposed(tiles.q()));
      mma::gemm<kTf32>(t_s, tiles.t_k().rows<16>(warp_row), transposed(tiles.q()));
      mma::gemm<kTf32>(t_s, tiles.k().rows<16>(warp_row), transposed(tiles.t_q()));
      mma::gemm<kTf32>(d_p, tiles.v().rows<16>(warp_row), transposed(tiles.d_out()));
      mma::gemm<kTf32>(t_d_p, tiles.t_v().rows<16>(warp_row), transposed(tiles.d_out()));
      // s: S^T, then dS^T.; t_s: S^T., then dS^T; d_p: dP^T, then (P f)^T.
#pragma unroll
      for (int n = 0; n < kBlockM / 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int q_idx = step.start + Scores::column(n, e), inside = min(q_idx, f.q_len - 1);
          const RowState of = row_state(t, row_of_all(f, b, h, inside), q_idx < f.q_len);
          const int position = position_of<Mod>(args, head, inside);
          const Mod::Row row = Mod::row(args, head, b, h, position, float(position)); // SEAM(row)
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const bool lives = kv_start + warp_row + Scores::row(r) < f.kv_len;
            const MovingGradient mine(args, head, row, col[r], {b, h, position, kv_idx[r]}, s.at(r, n, e) * f.scale,
                                      t_s.at(r, n, e) * f.scale, d_p.at(r, n, e), t_d_p.at(r, n, e), of, lives,
                                      step.flags & kStepMasked);
            s.at(r, n, e) = mine.t_d_s, t_s.at(r, n, e) = mine.d_s, d_p.at(r, n, e) = mine.t_p;
          }
        }
      mma::gemm<kTf32>(d_k, s, tiles.q());
      mma::gemm<kTf32>(d_k, t_s, tiles.t_q());
      mma::gemm<kTf32>(d_v, d_p, tiles.d_out());
    }
  }
  wait_for_tiles();
  Element* to_k = (Element*)head_of(p.d_k, p.d_k_stride, kv_b, kv_head);
  Element* to_v = (Element*)head_of(p.d_v, p.d_v_stride, kv_b, kv_head);
  mma::store_rows(tiles.k().rows<16>(warp_row), d_k, f.scale, to_k, p.d_k_stride.row, kv_start + warp_row, f.kv_len,
                  f.vectors);
  mma::store_rows(tiles.v().rows<16>(warp_row), d_v, 1.f, to_v, p.d_v_stride.row, kv_start + warp_row, f.kv_len,
                  f.vectors);
}

} // namespace attnc::sm80
