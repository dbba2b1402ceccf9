// Backward attention with mma.sync and cp.async, for sm_80 and later: dK and dV, and sums of dQ. 16-bit elements.
//
//   P = exp(mod(scale Q K^T) - lse),  G = P (dO V^T - delta),  dS = scale mod'(scale Q K^T) G
//   dV = P^T dO,  dK = dS^T Q,  dQ = dS K
//
// After FlashAttention-2's backward pass (Dao, arXiv:2307.08691). A CTA owns kBlockN rows of K and V, which stay in shared
// memory, and walks Q in steps of kBlockM rows, of all query heads of its KV head (and of all batches where K and V are
// broadcast), so dK and dV are summed in registers. dQ is added to fp32 sums in global memory: equal launches may differ
// in its last bits. Each product is computed once; all warps have the same role.
//
// S^T = K Q^T and dP^T = V dO^T have their rows along KV, 32 to a warp, so that what ldmatrix reads of Q and dO serves two
// groups of 16 rows: with one, shared memory would be the slower side. Where dK and dV of 32 rows take too many registers,
// kSplit warps share the rows: each has 1 / kSplit of a step's rows of Q in S^T, and of the head dim in dK and dV.
//
//   product              rows of a warp           columns of a warp         A from
//   S^T, dP^T            32 of kBlockN            kStepRows of kBlockM      shared memory
//   dV, dK               32 of kBlockN            1 / kSplit of head dim    registers if kSplit is 1, else shared memory
//   dQ                   32 of kBlockM            DqSums::kColumns          shared memory
//
//   shared memory   bytes                                     lifetime
//   KPart, VPart    kBlockN rows of K, of V                   whole kernel; then rows of dK, dV on their way out
//   QPart, OPart    2 slots of kBlockM rows of Q, of dO       a slot: a step, and the one before, in which it is filled
//   SPart, PPart    kBlockN x kBlockM of dS^T, of P^T (if     a step
//                   kSplit > 1)
//   WalkPart        the steps of a head                       all steps that they are of
//   Rows            2 slots of kSplit RowTables               as a slot of Q
//
//   barrier                    when                       what it says
//   cp.async, __syncthreads    begin of a step            its tiles and tables are there, and the step before is done with
//                                                         the other slot and with SPart, PPart
//   __syncthreads              within a step              SPart and PPart are written
//   __syncthreads, twice       between heads              the old walk is used up; the new one is there
//   __syncthreads              after the last step        K and V are used up; then: dK and dV are written
//
// The host provides: d_q_sums zeroed; grid kv tiles * kv_heads * kv_batch, in one dimension; 32 kWarps threads;
// kSharedBytes of dynamic shared memory. backward_delta.cu has run before, backward_finish_sm80.cu runs after.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/d_q_sums_mma.cuh"
#include "algo/q_walk.cuh"
#include "algo/transposed_scores.cuh"
#include "params_backward_sm80.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/copy_tile.cuh"
#include "tile/gemm_mma.cuh"
#include "tile/gemm_parts.cuh"
#include "tile/shared_memory.cuh"
#include "tile/store_packed.cuh"

namespace attnc::sm80 {

constexpr int kThreads = 32 * kWarps;
constexpr int kOwned = 32; // rows of K and V of a warp
constexpr int kGroups = kOwned / 16;
static_assert(kBlockN % kOwned == 0 && kWarps % (kBlockN / kOwned) == 0, "warps share rows of K and V evenly");
constexpr int kSplit = kWarps / (kBlockN / kOwned);
constexpr int kStepRows = kBlockM / kSplit;
static_assert(kBlockM % kSplit == 0 && kStepRows % 16 == 0, "products step by 16 rows of Q");
static_assert(kBlockM <= kThreads, "a thread fills in a row of the tables");

using QTile = PaddedTile<Element, kBlockM, kHeadDimQk>;
using OTile = PaddedTile<Element, kBlockM, kHeadDimV>;
using KTile = PaddedTile<Element, kBlockN, kHeadDimQk>;
using VTile = PaddedTile<Element, kBlockN, kHeadDimV>;
using STile = PaddedTile<Element, kBlockN, kBlockM>; // of S^T: P^T and dS^T
using Table = RowTable<Mod, kStepRows>;
struct KPart : SharedPart<KPart, KTile::kBytes> {};
struct VPart : SharedPart<VPart, VTile::kBytes> {};
struct QPart : SharedPart<QPart, 2 * QTile::kBytes> {};
struct OPart : SharedPart<OPart, 2 * OTile::kBytes> {};
struct SPart : SharedPart<SPart, STile::kBytes> {};
struct PPart : SharedPart<PPart, kSplit == 1 ? 0 : STile::kBytes> {};
struct Rows : SharedPart<Rows, 2 * kSplit * Table::kBytes> {};
struct WalkPart : SharedPart<WalkPart, 64> {};
using Memory = SharedMemory<KPart, VPart, QPart, OPart, SPart, PPart, WalkPart, Rows>;
static_assert(Memory::kBytes == kSharedBytes, "the host asks for another size: src/plan");

/// Columns of a warp's part of dK, of dV.
constexpr int part_of(int columns) { return round_up((columns + kSplit - 1) / kSplit, 16); }
constexpr int kQkPart = part_of(KTile::kColumns), kVPart = part_of(VTile::kColumns);

/// What a launch is to batch entry b alone.
template <class M> ATTNC_DEVICE decltype(auto) sm80_params_of(const BackwardParamsSm80& p, const ModArgs& args, int b) {
  if constexpr (kIsRagged<M>)
    return BackwardParamsSm80{params_of<M>(p.base, args, b), p.d_q_sums};
  else
    return (p);
}

/// Which rows of K and V a CTA owns.
struct KvTilePlace {
  int b, head, start;

  // NOTE: formed anew wherever it is called, since registers are scarce between.
  ATTNC_DEVICE KvTilePlace(const ForwardParams& f, const ModArgs& args) {
    if constexpr (kIsRagged<Mod>) {
      const HeadTile tile = ragged_kv_tile<Mod, kBlockN>(f, args, ptx::opaque(blockIdx.x));
      b = tile.b, head = tile.h, start = tile.start;
      return;
    }
    const int index = ptx::opaque(blockIdx.x), tiles = (f.kv_len + kBlockN - 1) / kBlockN;
    b = index / tiles / f.kv_heads;
    head = index / tiles % f.kv_heads;
    start = index % tiles * kBlockN;
  }
};

struct KvGradients {
  using Scores = Fragment<kGroups, kStepRows>;
  using Weights = PackedFragment<Element, kGroups, kStepRows>;
  using Place = KvPlace<Mod, kGroups>;
  const BackwardParamsSm80& p;
  const ModArgs& args;
  unsigned shared;
  int kv_start;
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  const int part = warp % kSplit, warp_row = warp / kSplit * kOwned;
  Fragment<kGroups, kQkPart> d_k;
  Fragment<kGroups, kVPart> d_v;

  ATTNC_DEVICE KTile k_tile() const { return {shared + Memory::offset_of<KPart>()}; }
  ATTNC_DEVICE VTile v_tile() const { return {shared + Memory::offset_of<VPart>()}; }
  ATTNC_DEVICE QTile q_tile(int slot) const { return {shared + Memory::offset_of<QPart>() + slot * QTile::kBytes}; }
  ATTNC_DEVICE OTile o_tile(int slot) const { return {shared + Memory::offset_of<OPart>() + slot * OTile::kBytes}; }
  ATTNC_DEVICE STile s_tile() const { return {shared + Memory::offset_of<SPart>()}; }
  ATTNC_DEVICE STile p_tile() const { return {shared + Memory::offset_of<PPart>()}; }
  ATTNC_DEVICE Table table(int slot, int i) const {
    return {shared + Memory::offset_of<Rows>() + (slot * kSplit + i) * Table::kBytes};
  }

  ATTNC_DEVICE void add_step(const Place& place, Step step, int slot, bool masked) {
    const ForwardParams& f = p.base.forward;
    const Table rows = table(slot, part);
    const Step mine = {step.start + part * kStepRows, step.flags};
    constexpr int kRowGroups = kStepRows / 8;
    shared = ptx::opaque(shared);
    Scores s, d_p;
    PackedWeights<Element, kStepRows, kGroups> packed;
    Weights d_s;
    s.fill(0.f);
    mma::gemm(s, k_tile().template rows<kOwned>(warp_row), // S^T = K Q^T
              transposed(q_tile(slot).template rows<kStepRows>(part * kStepRows)));
    // NOTE: a branch with the same work on both sides keeps ptxas from moving it into the products around it, which takes
    // registers.
    if (masked) {
      to_weights<0, kRowGroups, false>(s, packed, f, args, place, rows, rows.bias(), mine);
      drop_dead<0, kRowGroups>(packed, f, args, place, rows, mine);
    } else {
      to_weights<0, kRowGroups, false>(s, packed, f, args, place, rows, rows.bias(), mine);
    }
    if constexpr (kSplit > 1) mma::write_packed(p_tile(), warp_row, part * kStepRows, packed.weights);
    if constexpr (kSplit == 1) mma::gemm(d_v, packed.weights, mma::columns<kVPart>(o_tile(slot), 0)); // dV += P^T dO
    d_p.fill(0.f);
    mma::gemm(d_p, v_tile().template rows<kOwned>(warp_row), // dP^T = V dO^T
              transposed(o_tile(slot).template rows<kStepRows>(part * kStepRows)));
    typename Table::Values<> delta;
    rows.load_delta(delta);
    if (masked) {
      to_gradients<0, kRowGroups>(d_p, packed.rates(), d_s, delta);
      drop_dead<0, kRowGroups>(d_s, packed.rates());
    } else {
      to_gradients<0, kRowGroups>(d_p, packed.rates(), d_s, delta);
    }
    mma::write_packed(s_tile(), warp_row, part * kStepRows, d_s);

    // dV += P^T dO, dK += dS^T Q, dQ = dS K
    const auto o_part = mma::columns<kVPart>(o_tile(slot), part * kVPart);
    const auto q_part = mma::columns<kQkPart>(q_tile(slot), part * kQkPart);
    if constexpr (kSplit == 1) {
      mma::gemm(d_k, d_s, q_part);
    }
    __syncthreads();
    shared = ptx::opaque(shared);
    if constexpr (kSplit > 1) {
      mma::gemm(d_v, p_tile().template rows<kOwned>(warp_row), o_part);
      mma::gemm(d_k, s_tile().template rows<kOwned>(warp_row), q_part);
    }
    const mma::DqSums sums = {warp};
    mma::DqSums::Part d_q;
    d_q.fill(0.f);
    mma::gemm(d_q, transposed(mma::columns<mma::DqSums::kRows>(s_tile(), sums.first_row())),
              mma::columns<mma::DqSums::kColumns>(k_tile(), sums.first_column()));
    if constexpr (kIsRagged<Mod>) {
      sums.add(p.d_q_sums, head_tile_of<Mod, kBlockM>(f, args, place.b, place.h, step.start), d_q);
    } else {
      const int q_tiles = (f.q_len + kBlockM - 1) / kBlockM;
      sums.add(p.d_q_sums, (long long)(place.b * f.q_heads + place.h) * q_tiles + step.start / kBlockM, d_q);
    }
  }

  /// A query head that shares the KV head, and its steps.
  struct HeadWalk {
    QWalk<Mod, kBlockM, kBlockSparse> steps;
    int b, h;
  };
  static_assert(sizeof(HeadWalk) <= WalkPart::kBytes, "the walk does not fit");
  ATTNC_DEVICE HeadWalk& walk() const {
    return *(HeadWalk*)__cvta_shared_to_generic(shared + Memory::offset_of<WalkPart>());
  }
  ATTNC_DEVICE HeadWalk walk_of(int i) const {
    const ForwardParams& f = p.base.forward;
    const KvTilePlace tile(f, args);
    const int b = tile.b + i / f.group, h = tile.head * f.group + i % f.group;
    return {walk_q<Mod, kBlockM, kBlockSparse>(p.base, args, b, h, kv_start, min(kv_start + kBlockN, f.kv_len)), b, h};
  }

  /// Adds up over the rows of Q of all heads that share the KV head. While a step is computed, the tiles and tables of the
  /// next one are filled.
  ATTNC_DEVICE void run() {
    const ForwardParams& f = p.base.forward;
    const int heads = (p.base.kv_batch == f.batch ? 1 : f.batch) * f.group;
    const bool tail = kv_start + kBlockN > f.kv_len;
    Place place;
    Step step = {0, 0};
    bool has_step = false;
    int slot = 0; // of `step`
    // One more round, without a head, computes the last step.
#pragma unroll 1
    for (int i = 0; i <= heads; ++i) {
      if (i < heads) {
        if (i > 0) __syncthreads();
        if (threadIdx.x == 0) walk() = walk_of(i);
        __syncthreads();
      }
#pragma unroll 1
      for (int j = 0; i == heads ? j < 1 : j < walk().steps.count; ++j) {
        ptx::cp_async_wait_group<0>();
        __syncthreads();
        float lse = 0.f, delta = 0.f;
        if (i < heads) request(slot ^ 1, j, lse, delta);
        if (has_step) add_step(place, step, slot, tail || step.flags & kStepHasDead);
        if (i == heads) break;
        // NOTE: read again, since registers are scarce while a step is computed.
        step = walk().steps.at(j);
        slot ^= 1;
        fill_table(slot, step, lse, delta);
        if (j == 0) place = Place(f, args, walk().b, walk().h, kv_start, warp_row + Scores::row(0));
        has_step = !kBlockSparse || step.start < f.q_len; // a listed block may reach past the end by whole steps
      }
    }
    __syncthreads();
  }

  /// Begins to copy the tiles of a step, and loads what its row of the tables is filled with.
  ATTNC_DEVICE void request(int slot, int j, float& lse, float& delta) const {
    const ForwardParams& f = p.base.forward;
    const HeadWalk& at = walk();
    const int start = at.steps.start_of(j);
    const Strides &q_stride = f.q_stride, &o_stride = p.base.d_out_stride;
    copy_in<kThreads>(q_tile(slot), (const Element*)f.q + at.b * q_stride.batch + at.h * q_stride.head, q_stride.row, start,
                      f.q_len, f.vectors);
    copy_in<kThreads>(o_tile(slot), (const Element*)p.base.d_out + at.b * o_stride.batch + at.h * o_stride.head,
                      o_stride.row, start, f.q_len, f.vectors);
    ptx::cp_async_commit_group();
    if (threadIdx.x >= kBlockM) return;
    const long long index = row_of_all(f, at.b, at.h, min(start + int(threadIdx.x), f.q_len - 1));
    lse = f.lse[index];
    delta = p.base.delta[index];
  }

  ATTNC_DEVICE void fill_table(int slot, Step step, float lse, float delta) const {
    const int row = threadIdx.x;
    if (row >= kBlockM) return;
    const int b = walk().b, h = walk().h;
    const Mod::Head head = Mod::head(args, b, h); // SEAM(head)
    const int first = row / kStepRows * kStepRows, origin = Mod::kAnyOrigin ? kv_start : 0;
    table(slot, row / kStepRows)
        .fill(p.base.forward, args, head, b, h, {step.start + first, step.flags}, row - first, origin, lse, delta);
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_backward(const __grid_constant__ BackwardParamsSm80 launch, const __grid_constant__ ModArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  const KvTilePlace tile(launch.base.forward, args);
  const BackwardParamsSm80& p = sm80_params_of<Mod>(launch, args, tile.b);
  const ForwardParams& f = p.base.forward;
  if (!has_rows<Mod>(tile.start, f.kv_len)) return;
  KvGradients gradients = {p, args, ptx::shared_address(dynamic_shared), tile.start};
  const KTile k_tile = gradients.k_tile();
  const VTile v_tile = gradients.v_tile();
  const Element* k = (const Element*)f.k + tile.b * f.k_stride.batch + tile.head * f.k_stride.head;
  const Element* v = (const Element*)f.v + tile.b * f.v_stride.batch + tile.head * f.v_stride.head;
  copy_in<kThreads>(k_tile, k, f.k_stride.row, tile.start, f.kv_len, f.vectors);
  copy_in<kThreads>(v_tile, v, f.v_stride.row, tile.start, f.kv_len, f.vectors);
  ptx::cp_async_commit_group();
  gradients.d_k.fill(0.f);
  gradients.d_v.fill(0.f);
  gradients.run();

  mma::write_scaled(k_tile, gradients.warp_row, gradients.part * kQkPart, gradients.d_k, f.scale);
  mma::write_scaled(v_tile, gradients.warp_row, gradients.part * kVPart, gradients.d_v, 1.f);
  __syncthreads();
  constexpr int kRows = kBlockN / kWarps;
  const KvTilePlace to(f, args);
  const int first = gradients.warp * kRows, row = to.start + first;
  const Strides &k_stride = p.base.d_k_stride, &v_stride = p.base.d_v_stride;
  Element* d_k = (Element*)p.base.d_k + to.b * k_stride.batch + to.head * k_stride.head;
  Element* d_v = (Element*)p.base.d_v + to.b * v_stride.batch + to.head * v_stride.head;
  copy_out(k_tile.rows<kRows>(first), d_k, k_stride.row, row, f.kv_len, f.vectors);
  copy_out(v_tile.rows<kRows>(first), d_v, v_stride.row, row, f.kv_len, f.vectors);
}

} // namespace attnc::sm80
