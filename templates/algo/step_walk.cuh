// Which KV tiles a tile of Q rows visits, for kernels in which one warp walks and the others follow: all tiles, those
// of the block lists, or those between the bounds that a mod computes. Thread-uniform over a warp; no synchronisation.
//
// A mod may have   struct Bounds { int kv_begin, kv_full_begin, kv_full_end, kv_end; }
//                  static Bounds bounds(const ModArgs&, const Head&, int b, int h, int q_begin, int q_end)
// for the rows [q_begin, q_end): no column outside [kv_begin, kv_end) lives in any of them, all of those in
// [kv_full_begin, kv_full_end) live in every one; the kernel clips them to [0, kv_len). A mod with bounds needs no
// lists; lists that are given all the same are walked, since they may leave out more than the mask does.
#pragma once

#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/lazy_softmax.cuh"
#include "mod/hooks.cuh"
#include "params.cuh"

namespace attnc {

template <class M> constexpr bool kHasBounds = requires { &M::bounds; };

/// Whether the live columns of each row are exactly [kv_begin, kv_end) of the bounds of that row alone: as the mod
/// says.
template <class M> constexpr bool kRowsAreIntervals = requires { requires M::kRowsAreIntervals; };

enum StepFlags : int {
  kStepMasked = 1,  // mask_mod must be evaluated
  kStepTail = 2,    // some columns lie past kv_len
  kStepFirst = 4,   // the first step of its tile of Q rows
  kStepLast = 8,    // the last one
  kStepExact = 16,  // of a tile of few columns: references follow the maxima (lazy_softmax.cuh)
};

struct Step {
  int kv_start, flags;
};

/// The steps of one tile of Q rows, from the last column to the first, of lists the partial blocks before the full
/// ones: where scores grow along a row up to the diagonal, as with ALiBi, its maximum is then seen at once.
///
/// `step` is the first one, then `advance` goes on. There is at least one: a tile of rows without live columns gets a
/// step that lies past kv_len, so that its rows come out as fully masked.
template <class M> struct StepWalk {
  const BlockLists& lists;
  const int* partial_index;
  const int* full_index;
  int log2_tiles, partial_tiles, count, i;
  int full_begin, full_end; // with bounds and no lists
  int kv_len, first;
  Step step;

  ATTNC_DEVICE StepWalk(const ForwardParams& p, const ModArgs& args, int b, int h, int q_start, int q_end)
      : lists(p.lists), i(0), kv_len(p.kv_len), first(0) {
    if constexpr (kBlockSparse) {
      const long long row = b * lists.batch_stride + h * lists.head_stride + q_start / lists.q_block;
      log2_tiles = 31 - __clz(lists.kv_block / kBlockN);
      partial_index = lists.partial_index + row * lists.index_stride;
      partial_tiles = lists.partial_count[row] << log2_tiles;
      count = partial_tiles;
      if (lists.full_count) {
        full_index = lists.full_index + row * lists.index_stride;
        count += lists.full_count[row] << log2_tiles;
      }
    } else if constexpr (kHasBounds<M>) {
      const auto bounds = M::bounds(args, M::head(args, b, h), b, h, q_start, q_end);
      first = max(bounds.kv_begin, 0) / kBlockN;
      count = max((min(bounds.kv_end, kv_len) + kBlockN - 1) / kBlockN - first, 0);
      full_begin = bounds.kv_full_begin;
      full_end = bounds.kv_full_end;
    } else {
      count = (kv_len + kBlockN - 1) / kBlockN;
    }
    step = find();
  }

  /// Goes to the next step. Not after a step marked as last.
  ATTNC_DEVICE void advance() {
    ++i;
    step = find();
  }

private:
  ATTNC_DEVICE Step find() {
    if (i >= count) return {round_to_tile(max(kv_len, 1)), kStepTail | kStepFirst | kStepLast};
    int start, flags;
    if constexpr (kBlockSparse) {
      const bool masked = i < partial_tiles;
      const int j = (masked ? partial_tiles : count) - 1 - i;
      const int block = (masked ? partial_index : full_index)[j >> log2_tiles];
      start = ((block << log2_tiles) + (j & ((1 << log2_tiles) - 1))) * kBlockN;
      flags = masked ? kStepMasked : 0;
    } else if constexpr (kHasBounds<M>) {
      start = (first + count - 1 - i) * kBlockN;
      flags = start >= full_begin && min(start + kBlockN, kv_len) <= full_end ? 0 : kStepMasked;
    } else {
      start = (count - 1 - i) * kBlockN;
      flags = kStepMasked;
    }
    if (!M::kHasMaskMod) flags = 0;
    if (start + kBlockN > kv_len) flags |= kStepTail;
    if (i == 0) flags |= kStepFirst;
    if (count <= kExactSteps) flags |= kStepExact;
    if (i + 1 == count) flags |= kStepLast;
    return {start, flags};
  }

  ATTNC_DEVICE static int round_to_tile(int x) { return (x + kBlockN - 1) / kBlockN * kBlockN; }
};

} // namespace attnc
