// Backward attention over tokens on grids with mma.sync and cp.async, for sm_80 and later: dQ of f32; tiles are boxes
// in space. Deterministic: no atomics.
//
//   P = exp(mod(scale Q K^T) - lse),  G = P (dO V^T - delta),  dS = scale mod'(scale Q K^T) G,  dQ = dS K
//
// Like backward_q_sm80.cu, but rows are the queries of a box, and columns of a step are the keys of another, as in
// forward_grid_sm80.cu. All warps have the same role.
//
//   shared memory    bytes                        lifetime
//   QPart, OPart     kBlockM rows of Q, of dO     whole kernel; then staging of dQ
//   KPart, VPart     kBlockN rows of K, of V      a step
//
//   barrier                    when                     what it guarantees
//   __syncthreads              begin of a step          the tiles of the step before are free
//   cp.async, __syncthreads    before its products      the tiles of this step are ready
//
// Grid: boxes of queries * q_heads * batch, in one dimension. Threads: 32 kWarps; kSharedBytes of dynamic shared
// memory. Runs after backward_delta.cu. All tokens lie on the grids.
//
// Config:
//   kQueryBox   the CTA's box of queries, kBlockM = 16 kWarps tokens
//   kKeyBox     a step's box of keys, kBlockN tokens
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/backward_tiles_mma.cuh"
#include "algo/gradients.cuh"
#include "algo/grid_walk_mma.cuh"
#include "params_grid_sm80.cuh"

namespace attnc::sm80 {

using OwnBox = BoxShape<kQueryBox[0], kQueryBox[1], kQueryBox[2]>; // of queries
using KeyBox = BoxShape<kKeyBox[0], kKeyBox[1], kKeyBox[2]>;
static_assert(OwnBox::kTokens == kBlockM && kBlockM == 16 * kWarps, "a warp owns 16 queries");
static_assert(KeyBox::kTokens == kBlockN, "a step takes a box of keys");
constexpr int kWidest = kHeadDimQk > kHeadDimV ? kHeadDimQk : kHeadDimV;
using QueryTiles = GridTiles<OwnBox, KeyBox>;

/// The parameters as functions of forward kernels take them.
struct ForwardView {
  const ForwardParams& base;
  const int (&q_extent)[3];
  const int (&kv_extent)[3];
  int q_tiles[3]; // boxes of queries along each axis

  ATTNC_DEVICE explicit ForwardView(const BackwardGridParamsSm80& p)
      : base(p.base.forward), q_extent(p.q_extent), kv_extent(p.kv_extent) {
#pragma unroll
    for (int axis = 0; axis < 3; ++axis)
      q_tiles[axis] = (q_extent[axis] + OwnBox::extent(axis) - 1) / OwnBox::extent(axis);
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_backward_q(const __grid_constant__ BackwardGridParamsSm80 p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  const Tiles tiles(ptx::shared_address(dynamic_shared));
  using Scores = Fragment<1, kBlockN>;
  const ForwardParams& f = p.base.forward;
  const ForwardView view(p);

  // Later queries see more keys under causal axes, so the longest tiles start first.
  const int boxes = view.q_tiles[0] * view.q_tiles[1] * view.q_tiles[2];
  const QueryTiles::Plan plan =
      QueryTiles::plan(view, args, {int(blockIdx.x / boxes), boxes - 1 - int(blockIdx.x % boxes)});
  const int b = plan.head / f.q_heads, h = plan.head % f.q_heads, warp_row = int(threadIdx.x) / 32 * 16;
  {
    const Element* q = (const Element*)f.q + b * f.q_stride.batch + h * f.q_stride.head;
    const Element* d_out = (const Element*)p.base.d_out + b * p.base.d_out_stride.batch + h * p.base.d_out_stride.head;
    BoxTokens<Element, OwnBox, kBlockM, kThreads, kWidest> queries;
    queries.look(0, plan.origin, p.q_extent);
    queries.copy_in(tiles.q, q, f.q_stride.row, f.vectors);
    queries.copy_in(tiles.o, d_out, p.base.d_out_stride.row, f.vectors);
    ptx::cp_async_commit_group();
  }
  // NOTE: head addresses are computed again for each box: registers are scarce around the loop.
  const int kv_head = h / f.group;
  const auto head_of = [&](const void* tensor, const Strides& stride) {
    return (const Element*)tensor + b * stride.batch + ptx::opaque(kv_head) * stride.head;
  };

  const GridPlace place(OwnBox(), view, args, b, h, plan.origin, warp_row + Scores::row(0));
  const GridRange seen = grid::seen_by_warp(place);
  float bias[2], delta[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const long long index = row_of_all(f, b, h, place.q[r].index);
    bias[r] = weight_bias(f.lse[index], 0.f);
    delta[r] = p.base.delta[index];
  }

  const grid::SeenWalk<QueryTiles, KeyBox> walk = {plan};
  int origin[3]; // of the box of keys
  walk.begin(origin);
  LiveKeys<KeyBox> live;
  Fragment<1, QTile::kColumns> d_q;
  d_q.fill(0.f);
  const int steps = walk.steps();
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    if (i > 0) walk.advance(origin, i);
    __syncthreads();
    {
      BoxTokens<Element, KeyBox, kBlockN, kThreads, kWidest> keys;
      keys.look(0, origin, p.kv_extent);
      keys.copy_in(tiles.k, head_of(f.k, f.k_stride), f.k_stride.row, f.vectors);
      keys.copy_in(tiles.v, head_of(f.v, f.v_stride), f.v_stride.row, f.vectors);
      ptx::cp_async_commit_group();
    }
    ptx::cp_async_wait_group<0>();
    __syncthreads();
    if (!grid::meets(KeyBox(), seen, origin)) continue;
    Scores s, d_s;
    s.fill(0.f);
    d_s.fill(0.f);
    mma::gemm<kTf32>(s, tiles.q.rows<16>(warp_row), transposed(tiles.k));   // S = Q K^T
    mma::gemm<kTf32>(d_s, tiles.o.rows<16>(warp_row), transposed(tiles.v)); // dP = dO V^T
    Scores products = s;
    StepBias<Mod::Exponents, 2> step_bias(bias);
    apply_mod_on_grid<KeyBox>(s, view, args, place, live, origin, step_bias);
    step_bias.catch_up(place);
    // s: x, then P; products: S; d_s: dP, then dS.
    s.for_each(
        [&](float& x, int r) { x = bias[r] == negative_infinity() ? 0.f : ptx::ex2(step_bias.exponent(x, r, place)); });
    key_site<KeyBox, false>(view, args, place, origin, false, false, 0)
        .at_each(products,
                 [&](float& product, const Mod::Row& row, const Mod::Col& col, Coord at, int r, int n, int e) {
                   float& d = d_s.at(r, n, e);
                   d = score_gradient<Mod>(f, args, place.head, row, col, at, product, s.at(r, n, e), d, delta[r]);
                 });
    mma::gemm<kTf32>(d_q, d_s, tiles.k); // dQ += dS K
  }

  // Staged where Q was: no other warp reads a warp's rows of it.
  Element* to = (Element*)p.base.d_q + b * p.base.d_q_stride.batch + h * p.base.d_q_stride.head;
  grid::store_tokens(OwnBox(), tiles.q.rows<16>(warp_row), d_q, f.scale, to, p.base.d_q_stride.row, plan.origin,
                     warp_row, p.q_extent, f.vectors);
}

} // namespace attnc::sm80
