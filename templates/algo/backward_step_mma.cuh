// One step of the mma.sync backward kernels that compute each product once. A CTA owns kBlockN rows of K and V, which
// stay in shared memory, and walks Q in steps of kBlockM rows.
//
// S^T = K Q^T and dP^T = V dO^T have their rows along KV, 32 per warp. So each ldmatrix of Q or dO serves two groups of
// 16 rows; with one group, shared memory would be the bottleneck. If dK and dV of 32 rows take too many registers,
// kSplit warps share the rows: each takes 1 / kSplit of a step's rows of Q in S^T, and of the head dim in dK and dV.
//
//   product              rows of a warp           columns of a warp         A from
//   S^T, dP^T            32 of kBlockN            kStepRows of kBlockM      shared memory
//   dV, dK               32 of kBlockN            1 / kSplit of head dim    registers; shared memory if kSplit > 1
//   dQ                   32 of kBlockM            DqSums::kColumns          shared memory
//
//   shared memory   bytes                                     lifetime
//   KPart, VPart    kBlockN rows of K, of V                   whole kernel; then staging of dK, dV
//   QPart, OPart    2 slots of kBlockM rows of Q, of dO       a slot: filled during one step, read during the next
//   SPart, PPart    kBlockN x kBlockM of dS^T, of P^T (if     a step
//                   kSplit > 1)
//   WalkPart        what the kernel walks                     see the kernel
//   Rows            2 slots of kSplit tables of rows of Q     as a slot of Q
#pragma once

#include "attnc_mod.cuh"

#include "algo/d_q_sums_mma.cuh"
#include "algo/transposed_scores.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/gemm_mma.cuh"
#include "tile/gemm_parts.cuh"
#include "tile/shared_memory.cuh"
#include "tile/store_packed.cuh"

namespace attnc::sm80 {

constexpr int kThreads = 32 * kWarps;
constexpr int kOwned = 32; // rows of K and V per warp
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
using STile = PaddedTile<Element, kBlockN, kBlockM>; // P^T and dS^T
struct KPart : SharedPart<KPart, KTile::kBytes> {};
struct VPart : SharedPart<VPart, VTile::kBytes> {};
struct QPart : SharedPart<QPart, 2 * QTile::kBytes> {};
struct OPart : SharedPart<OPart, 2 * OTile::kBytes> {};
struct SPart : SharedPart<SPart, STile::kBytes> {};
struct PPart : SharedPart<PPart, kSplit == 1 ? 0 : STile::kBytes> {};
template <int Bytes> struct WalkPart : SharedPart<WalkPart<Bytes>, Bytes> {};
template <class Table> struct Rows : SharedPart<Rows<Table>, 2 * kSplit * Table::kBytes> {};

/// Returns how many columns of dK or dV a warp holds.
constexpr int part_of(int columns) { return round_up((columns + kSplit - 1) / kSplit, 16); }
constexpr int kQkPart = part_of(KTile::kColumns), kVPart = part_of(VTile::kColumns);

/// A warp's accumulators of dK and dV, and the step that adds to them. Params: the kernel's, with BackwardParams
/// `base`. Place: what a lane knows of its rows of K and V. Table: what all lanes share of kStepRows rows of Q. Walk:
/// the contents of WalkPart, which has WalkBytes.
template <class Params, class Place_, class Table_, class Walk, int WalkBytes> struct KvGradients {
  using Place = Place_;
  using Table = Table_;
  using Scores = Fragment<kGroups, kStepRows>;
  using Weights = PackedFragment<Element, kGroups, kStepRows>;
  using Memory = SharedMemory<KPart, VPart, QPart, OPart, SPart, PPart, WalkPart<WalkBytes>, Rows<Table>>;
  static_assert(Memory::kBytes == kSharedBytes, "the host asks for another size: src/plan");
  static_assert(sizeof(Walk) <= WalkBytes, "the walk does not fit");

  const Params& p;
  const ModArgs& args;
  unsigned shared;
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  const int part = warp % kSplit, warp_row = warp / kSplit * kOwned;
  Fragment<kGroups, kQkPart> d_k;
  Fragment<kGroups, kVPart> d_v;

  template <class Part> ATTNC_DEVICE unsigned at() const { return shared + Memory::template offset_of<Part>(); }
  ATTNC_DEVICE KTile k_tile() const { return {at<KPart>()}; }
  ATTNC_DEVICE VTile v_tile() const { return {at<VPart>()}; }
  ATTNC_DEVICE QTile q_tile(int slot) const { return {at<QPart>() + slot * QTile::kBytes}; }
  ATTNC_DEVICE OTile o_tile(int slot) const { return {at<OPart>() + slot * OTile::kBytes}; }
  ATTNC_DEVICE STile s_tile() const { return {at<SPart>()}; }
  ATTNC_DEVICE STile p_tile() const { return {at<PPart>()}; }
  ATTNC_DEVICE Table table(int slot, int i) const { return {at<Rows<Table>>() + (slot * kSplit + i) * Table::kBytes}; }
  ATTNC_DEVICE Walk& walk() const { return *(Walk*)__cvta_shared_to_generic(at<WalkPart<WalkBytes>>()); }

  /// Adds a step whose tiles and tables are in shared memory. `masked`: some of its weights must be dropped. d_q gets
  /// the warp's part of dQ, laid out as in DqSums.
  ATTNC_DEVICE void add_step(const Place& place, Step step, int slot, bool masked, mma::DqSums::Part& d_q) {
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
    // NOTE: both branches do the same work, so that ptxas does not move it into the products around it, which takes
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
    typename Table::template Values<> delta;
    rows.load_delta(delta);
    if constexpr (kHasOutputGradients<typename Place::Hooks>) {
      to_gradients<0, kRowGroups>(d_p, packed.rates(), d_s,
                                  DeltaOfOutputs{delta, packed.weights, f, args, place, rows, mine});
      if (masked) drop_dead<0, kRowGroups>(d_s, packed.rates());
    } else if (masked) {
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
    __syncthreads(); // SPart and PPart are written
    shared = ptx::opaque(shared);
    if constexpr (kSplit > 1) {
      mma::gemm(d_v, p_tile().template rows<kOwned>(warp_row), o_part);
      mma::gemm(d_k, s_tile().template rows<kOwned>(warp_row), q_part);
    }
    const mma::DqSums sums = {warp};
    d_q.fill(0.f);
    mma::gemm(d_q, transposed(mma::columns<mma::DqSums::kRows>(s_tile(), sums.first_row())),
              mma::columns<mma::DqSums::kColumns>(k_tile(), sums.first_column()));
  }

  /// Writes dK and dV over K and V, which no warp reads any more. The caller synchronises.
  ATTNC_DEVICE void write_sums(KTile k_tile, VTile v_tile) const {
    mma::write_scaled(k_tile, warp_row, part * kQkPart, d_k, p.base.forward.scale);
    mma::write_scaled(v_tile, warp_row, part * kVPart, d_v, 1.f);
  }
};

} // namespace attnc::sm80
