// Backward attention with mma.sync and cp.async, for sm_80 and later: dQ. Deterministic: no atomics.
//
//   P = exp(mod(scale Q K^T) - lse),  G = P (dO V^T - delta),  dS = scale mod'(scale Q K^T) G,  dQ = dS K
//
// A CTA owns kBlockM rows of Q, 16 per warp, and walks KV in steps of kBlockN columns, as the forward kernel does. P
// and dS are computed here and in backward_kv_sm80.cu, 7 products in all instead of 5: the price of neither atomics nor
// partial dQ in memory. All warps have the same role.
//
//   shared memory    bytes                        lifetime
//   QPart, OPart     kBlockM rows of Q, of dO     whole kernel; then staging of dQ
//   KPart, VPart     kBlockN rows of K, of V      a step
//
//   barrier                    when                     what it guarantees
//   __syncthreads              begin of a step          the tiles of the step before are free
//   cp.async, __syncthreads    before its products      the tiles of this step are ready
//   cp.async, __syncthreads    after the last step      Q is free, or its copy has ended
//
// Grid: q tiles * q_heads * batch, in one dimension. Threads: 32 kWarps, kBlockM is 16 kWarps; kSharedBytes of dynamic
// shared memory. Runs after backward_delta.cu.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/apply_mod.cuh"
#include "algo/backward_tiles_mma.cuh"
#include "algo/gradients.cuh"
#include "algo/kv_walk.cuh"
#include "tile/store_mma.cuh"

namespace attnc::sm80 {

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_backward_q(const __grid_constant__ BackwardParams launch, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  const unsigned shared = ptx::shared_address(dynamic_shared);
  const Tiles tiles(shared);
  using Scores = Fragment<1, kBlockN>;

  const auto [b, h, q_start] = q_tile_from_end<Mod, kBlockM>(launch.forward, args, blockIdx.x);
  const BackwardParams& p = params_of<Mod>(launch, args, b);
  const ForwardParams& f = p.forward;
  if (!has_rows<Mod>(q_start, f.q_len)) return;
  const int warp_row = int(threadIdx.x) / 32 * 16;
  const Element* q = (const Element*)f.q + b * f.q_stride.batch + h * f.q_stride.head;
  const Element* d_out = (const Element*)p.d_out + b * p.d_out_stride.batch + h * p.d_out_stride.head;
  const Element* k = (const Element*)f.k + b * f.k_stride.batch + h / f.group * f.k_stride.head;
  const Element* v = (const Element*)f.v + b * f.v_stride.batch + h / f.group * f.v_stride.head;
  copy_in<kThreads>(tiles.q, q, f.q_stride.row, q_start, f.q_len, f.vectors);
  copy_in<kThreads>(tiles.o, d_out, p.d_out_stride.row, q_start, f.q_len, f.vectors);
  ptx::cp_async_commit_group();

  const Place<1> place(f, args, b, h, q_start, warp_row + Scores::row(0));
  float bias[2], delta[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const long long index = row_of_all(f, b, h, place.q_idx(f, r));
    bias[r] = weight_bias(f.lse[index], Mod::row_shift(args, place.head, place.row[r])); // SEAM(row_shift)
    delta[r] = p.delta[index];
  }

  const auto walk = walk_kv<Mod, kBlockN, kBlockSparse>(f, args, b, h, q_start, min(q_start + kBlockM, f.q_len));
  Fragment<1, KTile::kColumns> d_q;
  d_q.fill(0.f);
#pragma unroll 1
  for (int i = 0; i < walk.count; ++i) {
    const Step step = walk.at(i);
    Scores s, d_s;
    tiles.multiply(s, d_s, f, k, v, step.start, warp_row);
    Scores products = s;
    StepBias<Mod::Exponents, 2> step_bias(bias);
    apply_mod(s, f, args, place, step, OwnColumns{}, step_bias);
    step_bias.catch_up(place);
    // s: x, then P; products: S; d_s: dP, then dS.
    s.for_each(
        [&](float& x, int r) { x = bias[r] == negative_infinity() ? 0.f : ptx::ex2(step_bias.exponent(x, r, place)); });
    at_each_score(products, f, args, place, step, OwnColumns{},
                  [&](float& product, const Mod::Row& row, const Mod::Col& col, Coord at, int r, int n, int e) {
                    float& d = d_s.at(r, n, e);
                    d = score_gradient<Mod>(f, args, place.head, row, col, at, product, s.at(r, n, e), d, delta[r]);
                  });
    mma::gemm<kTf32>(d_q, d_s, tiles.k); // dQ += dS K
  }

  ptx::cp_async_wait_group<0>();
  __syncthreads();
  Element* to = (Element*)p.d_q + b * p.d_q_stride.batch + h * p.d_q_stride.head;
  mma::store_rows(tiles.q.rows<16>(warp_row), d_q, f.scale, to, p.d_q_stride.row, q_start + warp_row, f.q_len,
                  f.vectors);
}

} // namespace attnc::sm80
