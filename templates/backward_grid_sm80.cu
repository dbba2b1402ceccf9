// Backward attention over tokens on grids with mma.sync and cp.async, for sm_80 and later: dK and dV, and sums of dQ;
// tiles are boxes in space.
//
//   P = exp(mod(scale Q K^T) - lse),  G = P (dO V^T - delta),  dS = scale mod'(scale Q K^T) G
//   dV = P^T dO,  dK = dS^T Q,  dQ = dS K
//
// Like backward_sm80.cu, but a CTA owns a box of kBlockN keys, and walks boxes of kBlockM queries from the first query
// that sees some of them, for all query heads of its KV head (and for all batches if K and V are broadcast). Threads
// compute the tokens' addresses, so nothing is permuted. Which keys of the box a query sees is one bit per coordinate.
//
// If kDeterministic, CTAs take boxes of a head from the last one on, and add to dQ in turns: algo/grid_steps.cuh. GPUs
// launch CTAs of lower index first; CUDA does not promise it.
//
// algo/backward_step_mma.cuh has the products of a step and their tiles in shared memory. In addition:
//
//   shared memory   bytes                                     lifetime
//   WalkPart        a head, and the boxes that it walks       a head; the place of a step: until its table is filled;
//                                                             its turn: until its dQ is added
//   Rows            2 slots of kSplit SeenTables              as a slot of Q
//
//   barrier                    when                       what it guarantees
//   cp.async, __syncthreads    begin of a step            its tiles and tables are ready; the step before has released
//                                                         the other slot, SPart, PPart; votes whether all see all
//   __syncthreads              within a step              SPart and PPart are written
//   __syncthreads, twice       if kDeterministic          it is the CTA's turn to add dQ; dQ is added
//   __syncthreads, twice       between heads              the old walk is free; the new one is ready
//   __syncthreads              after the last step        K and V are free; then: dK and dV are written
//
// The host provides: d_q_sums zeroed; grid boxes of keys * kv_heads * kv_batch, in one dimension; 32 kWarps threads;
// kSharedBytes of dynamic shared memory. Runs after backward_delta.cu and before backward_grid_finish_sm80.cu. All
// tokens lie on the grids.
//
// Config:
//   kQueryBox    a step's box of queries, kBlockM tokens
//   kKeyBox      a CTA's box of keys, kBlockN tokens
//   kDeterministic
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/backward_step_mma.cuh"
#include "algo/d_q_rows_mma.cuh"
#include "algo/grid_steps.cuh"
#include "algo/grid_transposed_scores.cuh"
#include "params_grid_sm80.cuh"
#include "ptx/turn.cuh"
#include "tile/copy_box.cuh"

namespace attnc::sm80 {

using QueryBox = BoxShape<kQueryBox[0], kQueryBox[1], kQueryBox[2]>;
using OwnBox = BoxShape<kKeyBox[0], kKeyBox[1], kKeyBox[2]>; // of keys
static_assert(QueryBox::kTokens == kBlockM && OwnBox::kTokens == kBlockN, "tiles are boxes");
constexpr int kWidest = kHeadDimQk > kHeadDimV ? kHeadDimQk : kHeadDimV;

/// A query head that shares the KV head, and its steps.
struct BoxWalk {
  int b, h, steps;
  int own[3];        ///< origin of the CTA's box of keys
  GridRange queries; ///< queries that see some of it
  int at[2][3];      ///< origin of a step's box, by slot: of the last requested step, and of the next one
  int turn[2];       ///< turn_of() a step, by slot, if kDeterministic
};
constexpr int kWalkBytes = 80;

struct Kernel : KvGradients<BackwardGridParamsSm80, KeyPlace<Mod, OwnBox, kGroups>, SeenTable<Mod, OwnBox, kStepRows>,
                            BoxWalk, kWalkBytes> {
  // NOTE: constructed again at each use, because registers are scarce in between.
  ATTNC_DEVICE OwnPlace<OwnBox> own_place() const {
    const int index = ptx::opaque(blockIdx.x), boxes = p.kv_tiles[0] * p.kv_tiles[1] * p.kv_tiles[2];
    return {p, index / boxes, kDeterministic ? boxes - 1 - index % boxes : index % boxes};
  }

  /// Writes the walk of head i, with its first step in `slot`. Called by one warp.
  ATTNC_DEVICE void begin_walk(int i, int slot) const {
    const OwnPlace<OwnBox> own = own_place();
    const HeadOfBox of(p, args, own, i);
    const GridRange queries = queries_of_part<Lattice<QueryBox, kDeterministic>>(p, args, of.head, of.b, of.h, own, 0);
    if (threadIdx.x != 0) return;
    BoxWalk& to = walk();
    to.b = of.b, to.h = of.h, to.steps = steps_over<QueryBox>(queries);
    to.queries = queries;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
      to.own[axis] = own.origin[axis];
      to.at[slot][axis] = queries.begin[axis];
    }
  }

  /// Returns query i of the step in `slot`.
  ATTNC_DEVICE Token query(int slot, int i, bool& exists) const {
    return find_token(QueryBox(), walk().at[slot], i, p.q_extent, beside_of(p).q, exists);
  }

  /// Issues the copies of the tiles of the step in `slot`, and loads the inputs of this thread's table row.
  ATTNC_DEVICE void request(int slot, float& lse, float& delta) const {
    const ForwardParams& f = p.base.forward;
    const BoxWalk& of = walk();
    const Strides &q_stride = f.q_stride, &o_stride = p.base.d_out_stride;
    BoxTokens<Element, QueryBox, kBlockM, kThreads, kWidest> tokens;
    tokens.look(0, of.at[slot], p.q_extent);
    tokens.copy_in(q_tile(slot), (const Element*)f.q + of.b * q_stride.batch + of.h * q_stride.head, q_stride.row,
                   f.vectors);
    tokens.copy_in(o_tile(slot), (const Element*)p.base.d_out + of.b * o_stride.batch + of.h * o_stride.head,
                   o_stride.row, f.vectors);
    ptx::cp_async_commit_group();
    if (threadIdx.x == 0) step_behind<QueryBox>(of.at[slot], of.queries, walk().at[slot ^ 1]);
    if (threadIdx.x >= kBlockM) return;
    bool exists;
    const long long index = row_of_all(f, of.b, of.h, query(slot, int(threadIdx.x), exists).index);
    lse = f.lse[index];
    delta = p.base.delta[index];
  }

  /// Fills this thread's table row. Returns whether some key of the box is dead to its query.
  ATTNC_DEVICE bool fill_table(int slot, float lse, float delta) const {
    const int row = threadIdx.x;
    if (row >= kBlockM) return false;
    const BoxWalk& of = walk();
    const Mod::Head head = Mod::head(args, of.b, of.h); // SEAM(head)
    if (kDeterministic && warp == 0)
      walk().turn[slot] = turn_of<QueryBox>(p, args, head, of.b, of.h, own_place(), of.at[slot]);
    bool exists;
    const Token q = query(slot, row, exists);
    using Bits = KeyBits<OwnBox>;
    const unsigned within = Bits::within(keys_of(args, head, of.b, of.h, q, p.kv_extent), of.own);
    const unsigned seen = exists && Bits::has_some(within) ? within : 0;
    const Table rows = table(slot, row / kStepRows);
    rows.fill(args, head, of.b, of.h, q, row % kStepRows, exists, lse, delta);
    rows.fill_seen(row % kStepRows, seen);
    return !Mod::kBoxIsMask || seen != Bits::kAll;
  }

  /// Adds dQ of the step in `slot` to the sums of those queries that see some key, if kDeterministic once it is the
  /// CTA's turn.
  ATTNC_DEVICE void add_d_q(const Place& place, int slot, const mma::DqSums::Part& d_q) const {
    const ForwardParams& f = p.base.forward;
    const long long head = (long long)(place.b * f.q_heads + place.h) * f.q_len;
    int turn = 0, *next = nullptr; // next: whose turn it is, by the first query of the cell
    if constexpr (kDeterministic) {
      int* const turns = (int*)(p.d_q_sums + (long long)f.batch * f.q_heads * f.q_len * mma::DqRows::kFloats);
      turn = walk().turn[slot], next = turns + head + table(slot, 0).index(0);
      if (threadIdx.x == 0)
        for (int now = 0; now < turn;) now = ptx::load_acquire(next);
      __syncthreads();
    }
    mma::DqRows{{warp}}.add(p.d_q_sums + head * mma::DqRows::kFloats, d_q, [&](int i) {
      const Table rows = table(slot, i / kStepRows);
      return rows.seen(i % kStepRows) ? rows.index(i % kStepRows) : -1;
    });
    if constexpr (kDeterministic) {
      __syncthreads();
      if (threadIdx.x == 0 && turn >= 0) ptx::store_release(next, turn + 1);
    }
  }

  /// Sums over the queries of all heads that share the KV head. While a step is computed, the tiles and tables of the
  /// next one are filled.
  ATTNC_DEVICE void run() {
    const int heads = heads_of_box(p);
    Place place;
    bool has_step = false, has_dead = false;
    int slot = 0; // of the step being computed
                  // One more round, without a head, computes the last step.
#pragma unroll 1
    for (int i = 0; i <= heads; ++i) {
      if (i < heads) {
        if (i > 0) __syncthreads();
        if (warp == 0) begin_walk(i, slot ^ 1);
        __syncthreads();
      }
#pragma unroll 1
      for (int j = 0; i == heads ? j < 1 : j < walk().steps; ++j) {
        ptx::cp_async_wait_group<0>();
        const bool masked = __syncthreads_or(has_dead);
        float lse = 0.f, delta = 0.f;
        if (i < heads) request(slot ^ 1, lse, delta);
        if (has_step) {
          mma::DqSums::Part d_q;
          add_step(place, {0, 0}, slot, masked, d_q);
          add_d_q(place, slot, d_q);
        }
        if (i == heads) break;
        slot ^= 1;
        has_dead = fill_table(slot, lse, delta);
        has_step = true;
        if (j == 0) place = Place(p, args, walk().b, walk().h, walk().own, warp_row + Scores::row(0));
      }
    }
    __syncthreads();
  }

  /// Stores a warp's rows of dK or dV.
  template <int Dim>
  ATTNC_DEVICE void store(PaddedTile<Element, kBlockN, Dim> tile, void* to, const Strides& stride,
                          const OwnPlace<OwnBox>& own) const {
    constexpr int kRows = kBlockN / kWarps;
    const int first = warp * kRows;
    BoxTokens<Element, OwnBox, kRows, 32, Dim> tokens;
    tokens.look(first, own.origin, p.kv_extent);
    tokens.copy_out(tile.template rows<kRows>(first), (Element*)to + own.b * stride.batch + own.head * stride.head,
                    stride.row, p.base.forward.vectors);
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_backward(const __grid_constant__ BackwardGridParamsSm80 p, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  const ForwardParams& f = p.base.forward;
  Kernel gradients = {{p, args, ptx::shared_address(dynamic_shared)}};
  const KTile k_tile = gradients.k_tile();
  const VTile v_tile = gradients.v_tile();
  {
    const OwnPlace<OwnBox> own = gradients.own_place();
    BoxTokens<Element, OwnBox, kBlockN, kThreads, kWidest> tokens;
    tokens.look(0, own.origin, p.kv_extent);
    tokens.copy_in(k_tile, (const Element*)f.k + own.b * f.k_stride.batch + own.head * f.k_stride.head, f.k_stride.row,
                   f.vectors);
    tokens.copy_in(v_tile, (const Element*)f.v + own.b * f.v_stride.batch + own.head * f.v_stride.head, f.v_stride.row,
                   f.vectors);
    ptx::cp_async_commit_group();
  }
  gradients.d_k.fill(0.f);
  gradients.d_v.fill(0.f);
  gradients.run();

  gradients.write_sums(k_tile, v_tile);
  __syncthreads();
  const OwnPlace<OwnBox> own = gradients.own_place();
  gradients.store<kHeadDimQk>(k_tile, p.base.d_k, p.base.d_k_stride, own);
  gradients.store<kHeadDimV>(v_tile, p.base.d_v, p.base.d_v_stride, own);
}

} // namespace attnc::sm80
