// Split-KV forward attention: few queries over long KV. Independent of how K and V reach shared memory, which
// decode_sm80.cu and decode_sm90.cu define.
//
// Rows of a tile are query tokens times the query heads that share a KV head (algo/packed_rows.cuh). The live steps of
// all tiles are dealt evenly to as many CTAs as run at once (algo/decode_work.cuh). A CTA that takes part of a tile
// stores partial sums; the last one to store merges all parts (algo/decode_sums.cuh). A separate merge kernel could
// begin only when this one's last CTA has ended.
//
// K and V may be fp8 (kFp8Kv): bytes in the ring, f16 in registers (tile/gemm_e4m3.cuh). The k_scale of a KV head is
// folded into the scale of the scores, and the v_scale is applied to O at an item's end. Scales of rows or of pages
// multiply columns of S, and of P: algo/column_scales.cuh.
//
// A warp owns 16 rows. Warps with different rows and the same columns form a team. A step of kBlockN columns is divided
// among teams; each has a ring of K and V of its own and waits for no other team. Loads continue from item to item:
// while the sums of one are added up, the ring fills with the next.
//
//   shared memory   bytes                                      lifetime
//   RingPart        kTeams * kStages slots: kTeamColumns       a slot: from load, kStages - 1 steps ahead, to use
//                   rows of K and of V
//                   at an item's end, the free slot of each    an item's end
//                   team holds 8 rows of O per warp, in fp32
//   QPart           2 of kBlockM rows of Q; f16 with fp8 K     one for the current item, one filled for the next
//   Copies::Control state of the copies                        whole kernel
//   QFactors        a float per row, with fp8 K: scale_q()     an item
//   Words           an int per warp and two more, for the      a call; an item
//                   dealer and for merge_parts(); the unit
//                   of a warp's O (algo/column_scales.cuh)
//
// All of it is dynamic: in front of tiles aligned to 1024 bytes, static memory would take 1024 bytes.
//
//   barrier                    when                            what it guarantees
//   Copies, __syncthreads      before an item's first step     Q and the team's K and V are ready; with fp8 K a second
//                                                              __syncthreads: Q is ready as f16
//   Copies, the team's         before each other step          its K and V are ready; those of the step before are free
//   the team's                 after the last step             K and V are free
//   __syncthreads              then, for 8 rows of each warp   O is ready
//   __syncthreads              after they are added up         O is free; results, or a part, are stored
//   __syncthreads              after a part is counted in      all threads know whether this CTA is last, and merges
//
// With kAppends, the CTA that has an item's first step writes the new rows of K and V, those of q's tokens, into K and
// V. All CTAs read the new rows from the launch's inputs: nobody reads what this launch writes.
//
// Grid: any size; if items are divided, there are parts for each CTA. Threads: 32 kWarps. Dynamic shared memory:
// kSharedBytes.
#pragma once

#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/append.cuh"
#include "algo/column_scales.cuh"
#include "algo/decode_sums.cuh"
#include "algo/packed_q.cuh"
#include "algo/packed_rows.cuh"
#include "algo/scaled_q.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/named_barrier.cuh"
#include "tile/gemm_mma.cuh"
#include "tile/shared_memory.cuh"

namespace attnc::decode {

using KvElement = typename Choose<kFp8Kv, E4M3, Element>::Type;
using Weight = typename Choose<kFp8Kv, F16, Element>::Type; // what P is rounded to
using Scores = Fragment<1, kTeamColumns>;
/// Whether v_scales of rows are loaded before the products that hide their latency. O of wide heads leaves no
/// registers.
constexpr bool kLoadsScalesAhead = kHeadDimV <= 128;

/// S = Q K^T and O += P V by warps of 16 rows, with mma.sync.
struct ProductsOfWarps {
  using QTile = PaddedTile<Element, kBlockM, kHeadDimQk>;
  /// `warp_row`: the warp's first row of the tile.
  template <class K> ATTNC_DEVICE static void multiply_k(Scores& s, QTile q, int warp_row, K k) {
    s.fill(0.f);
    const auto rows = q.template rows<16>(warp_row);
    if constexpr (kFp8Kv)
      e4m3::multiply_scores(s, rows, k);
    else
      mma::gemm(s, rows, transposed(k));
  }
  template <class V> ATTNC_DEVICE static void multiply_v(Out& o, const Scores& p, V v) {
    if constexpr (kFp8Kv)
      e4m3::multiply_values(o, p, v);
    else
      mma::gemm(o, p, v);
  }
};

ATTNC_DEVICE void sync_team(int team) {
  if constexpr (kTeamWarps == 1)
    __syncwarp();
  else
    ptx::named_barrier_sync<kTeamThreads>(1 + team);
}

/// The shared memory layout for the tiles of `Copies`: its KTile and VTile of kTeamColumns rows, kAlign of a slot, and
/// Control.
template <class Copies> struct Layout {
  static constexpr int kKvBytes = Copies::KTile::kBytes + Copies::VTile::kBytes;
  static constexpr int kSlotBytes =
      round_up(kKvBytes > int(sizeof(HalfSums)) ? kKvBytes : int(sizeof(HalfSums)), Copies::kAlign);
  static constexpr int kRingBytes = kStages * kSlotBytes; ///< of a team
  struct RingPart : SharedPart<RingPart, kTeams * kRingBytes, Copies::kAlign> {};
  using QTile = typename Copies::Products::QTile;
  struct QPart : SharedPart<QPart, 2 * QTile::kBytes, Copies::kAlign> {};
  struct QFactors : SharedPart<QFactors, kFp8Kv ? 4 * kBlockM : 0, 4> {};
  struct Words : SharedPart<Words, 4 * (kWarps + 2), 4> {};
  using Memory = SharedMemory<RingPart, QPart, typename Copies::Control, QFactors, Words>;
  static_assert(Memory::kBytes == kSharedBytes, "the host asks for another size: src/plan");
};

/// Fetches items, and loads the steps of the current and the next item into this team's ring.
///
/// Copies has the types of Layout, Products, the kernel's Params, and
///   Copies(address of Control)             Called once, by the whole CTA
///   load(p, work, i, column, k, v, slot)   Requests the team's rows of K and V, from `column` on, of step i of an item
///                                          into a slot. Steps come in order. Called by the whole team, as are the rest
///   wait(i, issued, slot)                  Waits for step i of an item, and for its rows of Q if i is 0. A step and
///                                          rows of Q behind it are one group of this thread's asynchronous copies
///   mend(p, tile, start, length, k, v)     Then: writes rows that the copies cannot load
///   release()                              Called before the barrier that lets copies overwrite this thread's writes
template <class Copies> struct Loader {
  using Params = typename Copies::Params;
  using Slots = Layout<Copies>;
  unsigned ring, q; ///< addresses of the team's first slot and of QPart
  int column;       ///< the team's first column of a step
  Copies copies;
  Dealer dealer;
  Work next;
  bool has_next = false;
  int issued = 0; ///< steps issued of the current item and, behind them, of the next one
  int slot = 0;   ///< to be filled next
  int parity = 0; ///< which Q is the current item's

  ATTNC_DEVICE typename Copies::KTile k_of(int slot) const { return {ring + slot * Slots::kSlotBytes}; }
  ATTNC_DEVICE typename Copies::VTile v_of(int slot) const { return {k_of(slot).base + Copies::KTile::kBytes}; }

  ATTNC_DEVICE bool fetch(const Params& p, const ModArgs& args) { return has_next = dealer.next(p, args, next); }

  /// Issues the next step if it belongs to these two items. Behind the last item, commits empty groups, so that groups
  /// can be counted.
  ATTNC_DEVICE void advance(const Params& p, const Work& work) {
    const bool is_next = issued >= work.walk.count;
    if (!is_next || has_next) {
      const int i = is_next ? issued - work.walk.count : issued;
      if (is_next && i >= next.walk.count) return;
      Work of = work; // a copy: a reference to one of the two would put both into local memory
      if (is_next) of = next;
      copies.load(p, of, i, column, k_of(slot), v_of(slot), slot);
      if (i == 0)
        load_q<kThreads, kBlockM * Slots::QTile::kColumns>(
            typename Slots::QTile{q + (parity ^ int(is_next)) * Slots::QTile::kBytes}, p.forward, of.tile, threadIdx.x);
    }
    ptx::cp_async_commit_group();
    ++issued;
    slot = slot + 1 == kStages ? 0 : slot + 1;
  }
};

/// Computes items until there are no more. M: the mod; or if it chooses, a variant: it also stops in front of an item
/// of another one. `begin`: 0 or 1; turn 0 only fetches an item and begins to load it.
template <class M, class Copies>
ATTNC_DEVICE int run_items(const typename Copies::Params& decode, const ModArgs& args, unsigned char* dynamic_shared,
                           Loader<Copies>& loader, int slot, int begin) {
  using Slots = Layout<Copies>;
  using Memory = typename Slots::Memory;
  int* const words = (int*)(dynamic_shared + Memory::template offset_of<typename Slots::Words>());
  float* const q_factors = (float*)(dynamic_shared + Memory::template offset_of<typename Slots::QFactors>());
  const PackedParams& p = decode.forward;
  const int warp = threadIdx.x / 32, team = warp / kTeamWarps, warp_row = warp % kTeamWarps * 16;
  const unsigned ring_offset = Memory::template offset_of<typename Slots::RingPart>() + team * Slots::kRingBytes;
#pragma unroll 1
  for (int turn = begin;; ++turn) {
    Work work = loader.next;
    if (turn > 0 && !loader.has_next) break;
    if constexpr (kChooses<Mod>)
      if (turn > 0 && computed_variant<Mod>(args, work.tile.b, 0) != M::kVariant) break;
    loader.fetch(decode, args);
    if (turn == 0) work.walk.count = 0;
    if constexpr (kAppends) // the walk begins with the last columns
      if (turn > 0 && work.share.begin == 0 && work.tile.first == 0)
        append_rows<kThreads>(p, cache_of(decode), pages_of(decode, work.tile.b), work.walk.length, work.tile.b,
                              work.tile.kv_head, 0, p.q_len, threadIdx.x);

    const typename Slots::QTile q_tile = {loader.q + loader.parity * Slots::QTile::kBytes};
    float scale[2] = {p.scale, p.scale};
    PackedPlace<M> place;
    if (turn > 0) place = PackedPlace<M>(p, args, work.tile, warp_row + Scores::row(0), scale);
    Out o;
    o.fill(0.f);
    Softmax<2> softmax;
#pragma unroll 1
    for (int i = loader.issued - (kStages - 1); i < work.walk.count; ++i) { // below 0: steps that are not issued yet
      const int start = i >= 0 ? work.walk.start_of(i) : 0;
      if (i >= 0) {
        loader.copies.wait(i, loader.issued, slot);
        loader.copies.mend(decode, work.tile, start + loader.column, work.walk.length, loader.k_of(slot),
                           loader.v_of(slot));
      }
      if (i == 0)
        __syncthreads();
      else if (i > 0)
        sync_team(team);
      loader.advance(decode, work);
      if (i < 0) continue;
      if constexpr (kFp8Kv)
        if (i == 0) {
          scale_q<kThreads>(q_tile, q_factors);
          __syncthreads();
          const float k_scale = head_scale(decode.k_scale, work.tile.b, work.tile.kv_head);
#pragma unroll
          for (int r = 0; r < 2; ++r) scale[r] *= k_scale * q_factors[warp_row + Scores::row(r)];
          place = PackedPlace<M>(p, args, work.tile, warp_row + Scores::row(0), scale);
        }
      ColumnScales<kTeamColumns> k_scales, v_scales;
      const auto load_scales = [&](ColumnScales<kTeamColumns>& to, const Scales& from) {
        to.load(from, pages_of(decode, work.tile.b), work.tile, start + loader.column, work.walk.length);
      };
      if constexpr (kFp8Kv) {
        load_scales(k_scales, decode.k_scale);
        if (kLoadsScalesAhead) load_scales(v_scales, decode.v_scale);
      }
      Scores s;
      Copies::Products::multiply_k(s, q_tile, warp_row, loader.k_of(slot));
      if constexpr (kFp8Kv)
        if (decode.k_scale.by_row) k_scales.multiply(s, 1.f);

      const Step step = {start + loader.column, work.walk.flags_of(i, start)};
      StepBias<typename M::Exponents, 2> bias(softmax, place);
      apply_mod(s, args, PackedSite<M>{p, args, place, step}, bias);
      if constexpr (kIsWeight<Mod>) {
        scores_to_weights(s);
      } else {
        follow_maxima<Weight>(s, softmax, bias, place, args, kRowMax || step.flags & kStepFew,
                              [&](const auto& factors) { o.scale_rows(factors); });
        weights_of(s, softmax, bias, place);
      }
      if constexpr (kHasProbMod<Mod>) scale_weights<Mod>(s, args, PackedSite<Mod>{p, args, place, step});
      if constexpr (kFp8Kv)
        if (decode.v_scale.by_row) {
          if (!kLoadsScalesAhead) load_scales(v_scales, decode.v_scale);
          // The unit of O lies in shared memory: O of wide heads leaves no register for it.
          const float before = i == 0 ? 1.f : __int_as_float(words[warp]), unit = v_scales.unit_behind(before);
          if (unit != before) {
            const float by = __fdividef(before, unit);
            o.for_each_rarely([&](float& element, int) { element *= by; });
          }
          __syncwarp();
          words[warp] = __float_as_int(unit);
          __syncwarp();
          v_scales.multiply(s, __fdividef(1.f, unit));
        }
      Copies::Products::multiply_v(o, s, loader.v_of(slot));
      slot = slot + 1 == kStages ? 0 : slot + 1;
    }
    loader.issued -= work.walk.count;
    loader.parity ^= 1;
    if (turn == 0) continue;
    sync_team(team);

    unsigned char* const sums = dynamic_shared + ring_offset + loader.slot * Slots::kSlotBytes; // no load in flight
    RowState state[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) state[r] = finish(softmax, r, place, args);
#pragma unroll 1
    for (int half = 0; half < 2 && 8 * half < work.tile.rows; ++half) {
      HalfSums& own = *(HalfSums*)sums;
      const int line = threadIdx.x % 32 / 4;
      if (threadIdx.x % 4 == 0) state[0].store(own.state[warp % kTeamWarps][line]);
      store_sums(own.out[warp % kTeamWarps][line], o, 0,
                 !kFp8Kv                 ? 1.f
                 : decode.v_scale.by_row ? work.walk.count > 0 ? __int_as_float(words[warp]) : 1.f
                                         : decode.v_scale.of(work.tile.b, work.tile.kv_head));
      loader.copies.release();
      __syncthreads();
      finish_rows(sums - team * Slots::kRingBytes, Slots::kRingBytes, half, decode, args, work);
      __syncthreads();
      state[0] = state[1];
#pragma unroll
      for (int n = 0; n < Out::kGroups; ++n) o.at(0, n, 0) = o.at(1, n, 0), o.at(0, n, 1) = o.at(1, n, 1);
    }
    if (!work.share.is_whole()) merge_parts(decode, args, work, words);
  }
  return slot;
}

template <class Copies>
ATTNC_DEVICE void run(const typename Copies::Params& decode, const ModArgs& args, unsigned char* dynamic_shared) {
  using Slots = Layout<Copies>;
  using Memory = typename Slots::Memory;
  int* const words = (int*)(dynamic_shared + Memory::template offset_of<typename Slots::Words>());
  const unsigned shared = ptx::shared_address(dynamic_shared);
  const int team = threadIdx.x / 32 / kTeamWarps;
  const unsigned ring_offset = Memory::template offset_of<typename Slots::RingPart>() + team * Slots::kRingBytes;

  Loader<Copies> loader = {
      shared + ring_offset, shared + unsigned(Memory::template offset_of<typename Slots::QPart>()), team * kTeamColumns,
      Copies(shared + unsigned(Memory::template offset_of<typename Copies::Control>())), Dealer(decode, args, words)};
  int slot = 0; // of the current step
  if constexpr (kChooses<Mod>) {
    for (int begin = 0; begin == 0 || loader.has_next; begin = 1)
      slot = with_variant<Mod>(begin ? computed_variant<Mod>(args, loader.next.tile.b, 0) : 0, [&](auto m) {
        return run_items<decltype(m)>(decode, args, dynamic_shared, loader, slot, begin);
      });
  } else {
    run_items<Mod>(decode, args, dynamic_shared, loader, 0, 0);
  }
  ptx::cp_async_wait_group<0>();
}

} // namespace attnc::decode
