// Backward attention with mma.sync and cp.async, for sm_80 and later: dK and dV. Deterministic: no atomics.
//
//   P = exp(mod(scale Q K^T) - lse),  G = P (dO V^T - delta),  dS = scale mod'(scale Q K^T) G
//   dV = P^T dO,  dK = dS^T Q
//
// A CTA owns kBlockN rows of K and V, 16 per warp, and walks Q in steps of kBlockM rows, for all query heads of its KV
// head (and for all batches if K and V are broadcast). S^T = K Q^T and dP^T = V dO^T have their rows along KV, so the
// registers of P^T and dS^T are already the A operands of dV and dK. If dK and dV together take too many registers, a
// CTA computes one of them. All warps have the same role.
//
//   shared memory    bytes                        lifetime
//   KPart, VPart     kBlockN rows of K, of V      whole kernel; then staging of dK, dV
//   QPart, OPart     kBlockM rows of Q, of dO     a step
//   Table (static)   a RowTable of kBlockM rows    a step
//
//   barrier                    when                     what it guarantees
//   __syncthreads              begin of a step          the tiles of the step before are free
//   cp.async, __syncthreads    before its products      the tiles of this step, and the table, are ready
//   cp.async, __syncthreads    after the last step      K and V are free, or their copies have ended
//
// Grid: kv tiles * kv_heads * kv_batch, in one dimension, twice that if dK and dV are apart (kApart). Threads: 32
// kWarps, kBlockN is 16 kWarps; kSharedBytes of dynamic shared memory. Runs after backward_delta.cu.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/backward_tiles_mma.cuh"
#include "algo/exact_gradients.cuh"
#include "algo/q_walk.cuh"
#include "tile/store_mma.cuh"

namespace attnc::sm80 {

using Table = RowTable<Mod, kBlockM>;

/// Whether dK and dV are computed by separate CTAs.
constexpr bool kApart = KTile::kColumns + VTile::kColumns > 256;

struct KvGradients {
  using Scores = Fragment<1, kBlockM>; // transposed: rows along KV
  const BackwardParams& p;
  const ModArgs& args;
  Tiles tiles;
  Table table;
  int kv_start, kv_head;

  /// Sums over the rows of Q of all heads that share the KV head.
  template <bool WantsK, bool WantsV>
  ATTNC_DEVICE void run(Fragment<1, KTile::kColumns>& d_k, Fragment<1, VTile::kColumns>& d_v, int kv_b) const {
    const ForwardParams& f = p.forward;
    const int warp_row = int(threadIdx.x) / 32 * 16;
    const int batches = batches_of_kv<Mod>(p, kv_start);
#pragma unroll 1
    for (int i = 0; i < batches * f.group; ++i) {
      const int b = kv_b + i / f.group, h = kv_head * f.group + i % f.group;
      const KvPlace<Mod> place(f, args, b, h, kv_start, warp_row + Scores::row(0));
      const Element* q = (const Element*)f.q + b * f.q_stride.batch + h * f.q_stride.head;
      const Element* d_out = (const Element*)p.d_out + b * p.d_out_stride.batch + h * p.d_out_stride.head;
      const auto walk = walk_q<Mod, kBlockM, kBlockSparse>(p, args, b, h, kv_start, min(kv_start + kBlockN, f.kv_len));
#pragma unroll 1
      for (int j = 0; j < walk.count; ++j) {
        const Step step = walk.at(j);
        __syncthreads();
        copy_in<kThreads>(tiles.q, q, f.q_stride.row, step.start, f.q_len, f.vectors);
        copy_in<kThreads>(tiles.o, d_out, p.d_out_stride.row, step.start, f.q_len, f.vectors);
        ptx::cp_async_commit_group();
        for (int row = threadIdx.x; row < kBlockM; row += kThreads) {
          const long long index = row_of_all(f, b, h, min(step.start + row, f.q_len - 1));
          table.fill(f, args, place.head, b, h, step, row, place.origin, f.lse[index], p.delta[index]);
        }
        ptx::cp_async_wait_group<0>();
        __syncthreads();

        Scores s, d_s;
        s.fill(0.f);
        mma::gemm<kTf32>(s, tiles.k.rows<16>(warp_row), transposed(tiles.q)); // S^T = K Q^T
        if constexpr (WantsK) {
          d_s.fill(0.f);
          mma::gemm<kTf32>(d_s, tiles.v.rows<16>(warp_row), transposed(tiles.o)); // dP^T = V dO^T
        }
        to_exact_gradients<WantsK>(s, d_s, f, args, place, table, step);
        if constexpr (WantsV) mma::gemm<kTf32>(d_v, s, tiles.o);   // dV += P^T dO
        if constexpr (WantsK) mma::gemm<kTf32>(d_k, d_s, tiles.q); // dK += dS^T Q
      }
    }
    ptx::cp_async_wait_group<0>();
    __syncthreads();
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_backward_kv(const __grid_constant__ BackwardParams launch, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  __shared__ __align__(16) unsigned char rows[Table::kBytes];
  const unsigned shared = ptx::shared_address(dynamic_shared);
  const auto [kv_b, kv_head, first] =
      kv_tile_at<Mod, kBlockN>(launch.forward, args, kApart ? blockIdx.x / 2 : blockIdx.x);
  const BackwardParams& p = params_of<Mod>(launch, args, kv_b);
  const ForwardParams& f = p.forward;
  if (!has_rows<Mod>(first, f.kv_len)) return;
  const KvGradients gradients = {p, args, Tiles(shared), {{ptx::shared_address(rows)}}, first, kv_head};
  const int kv_start = gradients.kv_start, warp_row = int(threadIdx.x) / 32 * 16;
  const Element* k = (const Element*)f.k + kv_b * f.k_stride.batch + kv_head * f.k_stride.head;
  const Element* v = (const Element*)f.v + kv_b * f.v_stride.batch + kv_head * f.v_stride.head;
  copy_in<kThreads>(gradients.tiles.k, k, f.k_stride.row, kv_start, f.kv_len, f.vectors);
  copy_in<kThreads>(gradients.tiles.v, v, f.v_stride.row, kv_start, f.kv_len, f.vectors);
  ptx::cp_async_commit_group();

  Fragment<1, KTile::kColumns> d_k;
  Fragment<1, VTile::kColumns> d_v;
  d_k.fill(0.f);
  d_v.fill(0.f);
  const bool second = kApart && blockIdx.x % 2;
  if constexpr (!kApart)
    gradients.run<true, true>(d_k, d_v, kv_b);
  else if (second)
    gradients.run<true, false>(d_k, d_v, kv_b);
  else
    gradients.run<false, true>(d_k, d_v, kv_b);

  Element* to_k = (Element*)p.d_k + kv_b * p.d_k_stride.batch + kv_head * p.d_k_stride.head;
  Element* to_v = (Element*)p.d_v + kv_b * p.d_v_stride.batch + kv_head * p.d_v_stride.head;
  if (!kApart || second)
    mma::store_rows(gradients.tiles.k.rows<16>(warp_row), d_k, f.scale, to_k, p.d_k_stride.row, kv_start + warp_row,
                    with_padding<Mod>(launch.forward, f).kv_len, f.vectors);
  if (!kApart || !second)
    mma::store_rows(gradients.tiles.v.rows<16>(warp_row), d_v, 1.f, to_v, p.d_v_stride.row, kv_start + warp_row,
                    with_padding<Mod>(launch.forward, f).kv_len, f.vectors);
}

} // namespace attnc::sm80
