// Forward attention over tokens on grids with mma.sync and cp.async, for sm_80 and later: tiles are boxes in space.
//
//   S = scale Q K^T,  P = softmax(mod(S)),  O = P V,  lse = log sum exp mod(S)
//
// Like forward_sm80.cu, but rows of a tile are the queries of a box, and columns of a step are the keys of another.
// Threads compute their addresses, so nothing is permuted. The CTA walks the boxes that cover what some query of it
// sees, from the first key on, the last axis fastest. A warp owns 16 queries, two rows per lane. It knows what they
// see, and skips boxes that none of them sees: a warp's queries see less than the CTA's. With kBlockSparse, lists name
// the live boxes of a lattice, and which of them need mask_mod (algo/listed_grid_tiles.cuh).
//
//   shared memory   bytes                                        lifetime
//   QPart           kBlockM rows, the wider of Q and O           Q: whole kernel; then staging of a warp's rows of O
//   KPart           kBlockN rows of K                            filled for step i + 1 while the softmax of step i runs
//   VPart           kBlockN rows of V                            filled while S = Q K^T runs
//
//   barrier                  when                                what it guarantees
//   cp.async, __syncthreads  before S = Q K^T of a step          K is ready; V of the step before is free
//   cp.async, __syncthreads  after it                            V is ready; K is free
//
// Grid: boxes of queries * q_heads * batch, in one dimension. Threads: 32 kWarps; kSharedBytes of dynamic shared
// memory. All tokens lie on the grids.
//
// Config:
//   kQueryBox   the CTA's box of queries, kBlockM = 16 kWarps tokens
//   kKeyBox     a step's box of keys, kBlockN tokens
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/grid_walk_mma.cuh"
#include "algo/listed_grid_tiles.cuh"
#include "algo/softmax.cuh"
#include "params_grid_sm80.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/gemm_mma.cuh"
#include "tile/shared_memory.cuh"

namespace attnc::grid {

constexpr int kThreads = 32 * kWarps;
using QueryShape = BoxShape<kQueryBox[0], kQueryBox[1], kQueryBox[2]>;
using KeyShape = BoxShape<kKeyBox[0], kKeyBox[1], kKeyBox[2]>;
static_assert(QueryShape::kTokens == kBlockM && kBlockM == 16 * kWarps, "a warp owns 16 queries");
static_assert(KeyShape::kTokens == kBlockN && kBlockN % 16 == 0, "K is multiplied 16 rows at a time");

using QTile = PaddedTile<Element, kBlockM, kHeadDimQk>;
using KTile = PaddedTile<Element, kBlockN, kHeadDimQk>;
using VTile = PaddedTile<Element, kBlockN, kHeadDimV>;
using OutTile = PaddedTile<Element, kBlockM, kHeadDimV>;
struct QPart : SharedPart<QPart, (QTile::kBytes > OutTile::kBytes ? QTile::kBytes : OutTile::kBytes)> {};
struct KPart : SharedPart<KPart, KTile::kBytes> {};
struct VPart : SharedPart<VPart, VTile::kBytes> {};
using Memory = SharedMemory<QPart, KPart, VPart>;
static_assert(Memory::kBytes == kSharedBytes, "the host asks for another size: src/plan");

using SeenTiles = GridTiles<QueryShape, KeyShape>;
using ListedTiles = ListedGridTiles<QueryShape, KeyShape>;
using Tiles = Choose<kBlockSparse, ListedTiles, SeenTiles>::Type;
using Scores = Fragment<1, kBlockN>;
using Out = Fragment<1, VTile::kColumns>;
using KeyTokens = BoxTokens<Element, KeyShape, kBlockN, kThreads, (kHeadDimQk > kHeadDimV ? kHeadDimQk : kHeadDimV)>;
constexpr int kAccumulators = (sizeof(Scores) + sizeof(Out)) / sizeof(float); // registers per thread
// In addition, what rows see takes some 60 registers, and more for three axes; parts of fp32 operands take some; a mod
// that is called for each score takes all that are left. From this follows how many CTAs fit on an SM, which ptxas is
// told.
constexpr bool kIsPlain = Mod::kBoxIsMask && !Mod::Exponents::kCallsScore;
constexpr int kTaken = kAccumulators + (Mod::kGridAxes == 3 ? 24 : 0) +
                       (sizeof(Element) == 2   ? 0
                        : VTile::kColumns > 48 ? (VTile::kColumns - 32) / 2
                                               : 8);
constexpr int kResident = !kIsPlain ? 256 : kTaken <= 64 ? 512 : kTaken <= 92 ? 384 : 256; // threads per SM
constexpr int kCtas = kResident < kThreads ? 1 : kResident / kThreads;
constexpr int kFewKeys = 128; // rows that see no more keys than this use exact references: softmax.cuh

/// The boxes of keys that a tile walks.
ATTNC_DEVICE SeenWalk<SeenTiles, KeyShape> walk_of(const SeenTiles::Plan& plan, const ForwardGridParamsSm80&, int,
                                                   int) {
  return {plan};
}

/// The boxes of a tile's list.
struct ListedWalk {
  const ForwardGridParamsSm80& p;
  ListedBoxes<KeyShape> boxes;

  ATTNC_DEVICE int steps() const { return boxes.steps(); }
  ATTNC_DEVICE void begin(int (&origin)[3]) const { boxes.origin_of(p, 0, origin); }
  ATTNC_DEVICE void advance(int (&origin)[3], int step) const { boxes.origin_of(p, step, origin); }
  ATTNC_DEVICE bool is_full(int step) const { return boxes.is_full(step); }
};
ATTNC_DEVICE ListedWalk walk_of(const ListedTiles::Plan& plan, const ForwardGridParamsSm80& p, int b, int h) {
  return {p, ListedBoxes<KeyShape>(p, b, h, plan.tile)};
}

/// Normalises a warp's rows of O, stages them in `rows` and stores them. Stores lse and row maximum directly.
ATTNC_DEVICE void store(const Out& o, Softmax<2>& softmax, const ForwardGridParamsSm80& p, const ModArgs& args,
                        const GridPlace& place, PaddedTile<Element, 16, kHeadDimV> rows, const int (&origin)[3],
                        int first) {
  const ForwardParams& base = p.base;
  // NOTE: the query is found again, so that it needs no registers around the loop
  const auto query_of = [&](int r, bool& exists) {
    return find_token(QueryShape(), origin, ptx::opaque(first) + Out::row(r), p.q_extent, beside_of(p).q, exists);
  };
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float normalise = softmax.finish(r);
    bool exists;
    if constexpr (kHasSink<Mod>) normalise = with_sink(softmax, r, args, place, query_of(r, exists)).normalise;
    Element* line = rows.elements(Out::row(r)) + Out::first_column();
#pragma unroll
    for (int n = 0; n < Out::kGroups; ++n) store2(line + 8 * n, o.at(r, n, 0) * normalise, o.at(r, n, 1) * normalise);
  }
  const long long head = ((long long)place.b * base.q_heads + place.h) * base.q_len;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    bool exists;
    const Token q = query_of(r, exists);
    if (threadIdx.x % 4 != 0 || !exists) continue;
    if (base.lse) base.lse[head + q.index] = lse_of(softmax, r, args, place, q);
    if (kRowMax && base.row_max) base.row_max[head + q.index] = softmax.max(r, place.form(r), 0.f);
  }
  __syncwarp();
  BoxTokens<Element, QueryShape, 16, 32, kHeadDimV> tokens;
  tokens.look(first, origin, p.q_extent);
  tokens.copy_out(rows, (Element*)base.out + place.b * base.out_stride.batch + place.h * base.out_stride.head,
                  base.out_stride.row, base.vectors);
}

extern "C" __global__ void __launch_bounds__(kThreads, kCtas)
    attnc_forward(const __grid_constant__ ForwardGridParamsSm80 p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  const unsigned shared = ptx::shared_address(dynamic_shared);
  const QTile q_tile = {shared + Memory::offset_of<QPart>()};
  const KTile k_tile = {shared + Memory::offset_of<KPart>()};
  const VTile v_tile = {shared + Memory::offset_of<VPart>()};
  const ForwardParams& base = p.base;
  const int warp_row = int(threadIdx.x) / 32 * 16;

  // Later queries see more keys under causal axes, so the longest tiles start first.
  const int tiles = p.q_tiles[0] * p.q_tiles[1] * p.q_tiles[2];
  const Tiles::Plan plan = Tiles::plan(p, args, {int(blockIdx.x / tiles), tiles - 1 - int(blockIdx.x % tiles)});
  const int b = plan.head / base.q_heads, h = plan.head % base.q_heads;
  const Element* q = (const Element*)base.q + b * base.q_stride.batch + h * base.q_stride.head;
  // NOTE: head addresses are computed again for each box, which takes four registers less around the loop.
  const int kv_head = h / base.group;
  const auto head_of = [&](const void* tensor, const Strides& stride) {
    return (const Element*)tensor + b * stride.batch + ptx::opaque(kv_head) * stride.head;
  };

  const auto walk = walk_of(plan, p, b, h);
  int origin[3]; // of the box of keys
  walk.begin(origin);
  KeyTokens keys;
  {
    BoxTokens<Element, QueryShape, kBlockM, kThreads, kHeadDimQk> queries;
    queries.look(0, plan.origin, p.q_extent);
    queries.copy_in(q_tile, q, base.q_stride.row, base.vectors);
  }
  keys.look(0, origin, p.kv_extent);
  keys.copy_in(k_tile, head_of(base.k, base.k_stride), base.k_stride.row, base.vectors);
  ptx::cp_async_commit_group();

  const GridPlace place(QueryShape(), p, args, b, h, plan.origin, warp_row + Scores::row(0));
  const GridRange seen = seen_by_warp(place);
  LiveKeys<KeyShape> live;
  Scores s;
  Out o;
  o.fill(0.f);
  Softmax<2> softmax;
  const int steps = walk.steps();
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    const bool works = meets(KeyShape(), seen, origin);
    ptx::cp_async_wait_group<0>();
    __syncthreads();
    keys.copy_in(v_tile, head_of(base.v, base.v_stride), base.v_stride.row, base.vectors);
    ptx::cp_async_commit_group();

    if (works) {
      s.fill(0.f);
      mma::gemm<kTf32>(s, q_tile.rows<16>(warp_row), transposed(k_tile)); // S = Q K^T
    }

    ptx::cp_async_wait_group<0>();
    __syncthreads();
    const int at[3] = {origin[0], origin[1], origin[2]};
    if (i + 1 < steps) {
      walk.advance(origin, i + 1);
      keys.look(0, origin, p.kv_extent);
      keys.copy_in(k_tile, head_of(base.k, base.k_stride), base.k_stride.row, base.vectors);
    }
    ptx::cp_async_commit_group();

    if (!works) continue;
    StepBias<Mod::Exponents, 2> bias(softmax, place);
    apply_mod_on_grid<KeyShape>(s, p, args, place, live, at, bias, walk.is_full(i));
    const bool exact = kRowMax || steps * kBlockN <= kFewKeys;
    Rescaling<2> rescaling;
    follow_maxima<Element>(s, softmax, bias, place, args, exact, rescaling);
    to_exponents(s, bias, place);
    if (rescaling.is_due) o.scale_rows(rescaling.factors);
    WeightSums<2> sums(softmax);
    to_weights<0, Scores::kGroups>(s, sums);
    sums.store(softmax);
    mma::gemm<kTf32>(o, s, v_tile); // O += P V
  }

  // Staged where Q was: no warp reads it any more.
  store(o, softmax, p, args, place, {shared + Memory::offset_of<QPart>() + warp_row * OutTile::kRowBytes}, plan.origin,
        warp_row);
}

} // namespace attnc::grid
