// Backward attention over tokens on grids with mma.sync and cp.async, for sm_80 and later: dK and dV of f32; tiles are
// boxes in space. Deterministic: no atomics.
//
//   P = exp(mod(scale Q K^T) - lse),  G = P (dO V^T - delta),  dS = scale mod'(scale Q K^T) G
//   dV = P^T dO,  dK = dS^T Q
//
// Like backward_kv_sm80.cu, but a CTA owns a box of kBlockN keys, and walks boxes of kBlockM queries from the first
// query that sees some of them, as backward_grid_sm80.cu does. All warps have the same role.
//
//   shared memory    bytes                        lifetime
//   KPart, VPart     kBlockN rows of K, of V      whole kernel; then staging of dK, dV
//   QPart, OPart     kBlockM rows of Q, of dO     a step
//   Table (static)   a SeenTable of kBlockM rows  a step
//
//   barrier                    when                     what it guarantees
//   __syncthreads              begin of a step          the tiles of the step before are free
//   cp.async, __syncthreads    before its products      the tiles of this step, and the table, are ready
//   cp.async, __syncthreads    after the last step      K and V are free, or their copies have ended
//
// Grid: boxes of keys * kv_heads * kv_batch, in one dimension. Threads: 32 kWarps; kSharedBytes of dynamic shared
// memory. Runs after backward_delta.cu. All tokens lie on the grids.
//
// Config:
//   kQueryBox   a step's box of queries, kBlockM tokens
//   kKeyBox     the CTA's box of keys, kBlockN = 16 kWarps tokens
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/backward_tiles_mma.cuh"
#include "algo/grid_exact_gradients.cuh"
#include "algo/grid_steps.cuh"
#include "algo/grid_walk_mma.cuh"
#include "params_grid_sm80.cuh"

namespace attnc::sm80 {

using QueryBox = BoxShape<kQueryBox[0], kQueryBox[1], kQueryBox[2]>;
using OwnBox = BoxShape<kKeyBox[0], kKeyBox[1], kKeyBox[2]>; // of keys
static_assert(OwnBox::kTokens == kBlockN && kBlockN == 16 * kWarps, "a warp owns 16 keys");
static_assert(QueryBox::kTokens == kBlockM, "a step takes a box of queries");
constexpr int kWidest = kHeadDimQk > kHeadDimV ? kHeadDimQk : kHeadDimV;
using Place = KeyPlace<Mod, OwnBox>;
using Table = SeenTable<Mod, OwnBox, kBlockM>;

/// Copies and fills what a step at `at` takes of its queries.
ATTNC_DEVICE void load_step(const Tiles& tiles, Table table, const BackwardGridParamsSm80& p, const ModArgs& args,
                            const Mod::Head& head, int b, int h, const int (&at)[3], const int (&own)[3]) {
  const ForwardParams& f = p.base.forward;
  const Strides &q_stride = f.q_stride, &o_stride = p.base.d_out_stride;
  BoxTokens<Element, QueryBox, kBlockM, kThreads, kWidest> tokens;
  tokens.look(0, at, p.q_extent);
  tokens.copy_in(tiles.q, (const Element*)f.q + b * q_stride.batch + h * q_stride.head, q_stride.row, f.vectors);
  tokens.copy_in(tiles.o, (const Element*)p.base.d_out + b * o_stride.batch + h * o_stride.head, o_stride.row,
                 f.vectors);
  ptx::cp_async_commit_group();
  for (int row = threadIdx.x; row < kBlockM; row += kThreads) {
    bool exists;
    const Token q = find_token(QueryBox(), at, row, p.q_extent, beside_of(p).q, exists);
    const long long index = row_of_all(f, b, h, q.index);
    const unsigned within = KeyBits<OwnBox>::within(keys_of(args, head, b, h, q, p.kv_extent), own);
    table.fill(args, head, b, h, q, row, exists, f.lse[index], p.base.delta[index]);
    table.fill_seen(row, exists ? within : 0);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_backward_kv(const __grid_constant__ BackwardGridParamsSm80 p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  __shared__ __align__(16) unsigned char rows[Table::kBytes];
  const Tiles tiles(ptx::shared_address(dynamic_shared));
  const Table table = {{{ptx::shared_address(rows)}}};
  const ForwardParams& f = p.base.forward;
  const int boxes = p.kv_tiles[0] * p.kv_tiles[1] * p.kv_tiles[2], warp_row = int(threadIdx.x) / 32 * 16;
  const OwnPlace<OwnBox> own(p, int(blockIdx.x / boxes), int(blockIdx.x % boxes));
  {
    BoxTokens<Element, OwnBox, kBlockN, kThreads, kWidest> keys;
    keys.look(0, own.origin, p.kv_extent);
    keys.copy_in(tiles.k, (const Element*)f.k + own.b * f.k_stride.batch + own.head * f.k_stride.head, f.k_stride.row,
                 f.vectors);
    keys.copy_in(tiles.v, (const Element*)f.v + own.b * f.v_stride.batch + own.head * f.v_stride.head, f.v_stride.row,
                 f.vectors);
    ptx::cp_async_commit_group();
  }

  using Scores = Fragment<1, kBlockM>; // transposed: rows along KV
  Fragment<1, KTile::kColumns> d_k;
  Fragment<1, VTile::kColumns> d_v;
  d_k.fill(0.f);
  d_v.fill(0.f);
  Place place;
  place.b = place.h = -1;
  for_each_step<QueryBox, false>(p, args, own, [&](const Mod::Head& head, int b, int h, const int(&at)[3]) {
    __syncthreads();
    load_step(tiles, table, p, args, head, b, h, at, own.origin);
    if (place.b != b || place.h != h) place = Place(p, args, b, h, own.origin, warp_row + Scores::row(0));
    ptx::cp_async_wait_group<0>();
    __syncthreads();

    Scores s, d_s;
    s.fill(0.f);
    d_s.fill(0.f);
    mma::gemm<kTf32>(s, tiles.k.rows<16>(warp_row), transposed(tiles.q));   // S^T = K Q^T
    mma::gemm<kTf32>(d_s, tiles.v.rows<16>(warp_row), transposed(tiles.o)); // dP^T = V dO^T
    to_exact_gradients(s, d_s, f, args, place, table);
    mma::gemm<kTf32>(d_v, s, tiles.o);   // dV += P^T dO
    mma::gemm<kTf32>(d_k, d_s, tiles.q); // dK += dS^T Q
  });
  ptx::cp_async_wait_group<0>();
  __syncthreads();

  const auto store = [&](auto tile, const auto& from, float factor, void* to, const Strides& stride) {
    grid::store_tokens(OwnBox(), tile.template rows<16>(warp_row), from, factor,
                       (Element*)to + own.b * stride.batch + own.head * stride.head, stride.row, own.origin, warp_row,
                       p.kv_extent, f.vectors);
  };
  store(tiles.k, d_k, f.scale, p.base.d_k, p.base.d_k_stride);
  store(tiles.v, d_v, 1.f, p.base.d_v, p.base.d_v_stride);
}

} // namespace attnc::sm80
