// The steps of a tile: which tiles of the other axis it visits, in which order, and what each needs.
//
// A tile of Q rows walks along KV; a tile of KV columns walks along Q. The walk takes all positions of the walked axis,
// those between the bounds that the mod computes, or the blocks of lists. It takes all of its steps, or one of several
// parts (split-KV). Thread-uniform, without synchronisation, and independent of mods: kv_walk.cuh connects them.
//
// Steps go from the last position to the first. With lists, partial blocks come before full ones: if scores grow along
// a row up to the diagonal, as with ALiBi, its maximum is then seen at once.
#pragma once

#include "mod/contract.cuh"
#include "params.cuh"

namespace attnc {

enum StepFlags : int {
  kStepMasked = 1, // mask_mod must be evaluated
  kStepTail = 2,   // some positions lie past the end
  kStepFirst = 4,  // the first step of its tile
  kStepLast = 8,   // the last one
  kStepFew = 16,   // the tile's steps have at most kFewColumns positions: softmax.cuh
};
constexpr int kFewColumns = 640;

struct Step {
  int start, flags; ///< the first of its positions; StepFlags
};

enum class StepSource { All, Bounds, Lists };

/// One tile's lists of blocks along the walked axis: BlockLists of params.cuh, at the tile's own block.
struct BlockRow {
  const int *partial_index, *full_index;
  int partial_count, full_count;
  int block; ///< positions of a block: those of a step times a power of two

  /// Takes a list of partial blocks only.
  ATTNC_DEVICE BlockRow(const int* index, int count, int block)
      : partial_index(index), full_index(index), partial_count(count), full_count(0), block(block) {}

  /// `tile_block`: the block of the other axis that the tile lies in. `walked_block`: positions of a listed block.
  ATTNC_DEVICE BlockRow(const BlockLists& lists, int b, int h, int tile_block, int walked_block) : block(walked_block) {
    const long long row = b * lists.batch_stride + h * lists.head_stride + tile_block;
    partial_index = lists.partial_index + row * lists.index_stride;
    full_index = lists.full_index + row * lists.index_stride;
    // A caller's counts may exceed the lists, and his indices be negative (start_of()).
    partial_count = min(unsigned(lists.partial_count[row]), unsigned(lists.index_stride));
    full_count = lists.full_count ? min(unsigned(lists.full_count[row]), unsigned(lists.index_stride)) : 0;
  }
};

/// The blocks of one tile's lists from the last position to the first, whichever list names them. Lists are ascending.
struct DescendingBlocks {
  BlockRow row; ///< its counts: how many blocks are left

  ATTNC_DEVICE bool is_empty() const { return row.partial_count + row.full_count == 0; }

  /// Takes a block. `is_partial`: which list it is from.
  ATTNC_DEVICE int take(bool& is_partial) {
    const int partial = row.partial_count > 0 ? row.partial_index[row.partial_count - 1] : -1;
    const int full = row.full_count > 0 ? row.full_index[row.full_count - 1] : -1;
    is_partial = row.full_count == 0 || partial > full;
    --(is_partial ? row.partial_count : row.full_count);
    return is_partial ? partial : full;
  }
};

/// `Size`: positions of a step. `HasMask`: if false, no step is masked.
template <int Size, StepSource Source, bool HasMask> struct StepWalk {
  int length;                            // of the walked axis
  int first = 0;                         // Bounds: index of the first step, counted from position 0
  int all;                               // steps of the tile
  int count;                             // steps of this walk: all, or a part of them
  int skipped = 0;                       // steps before the part
  int full_begin, full_end;              // Bounds: positions that need no mask
  const int *partial_index, *full_index; // Lists
  int log2_steps, partial_steps;         // Lists: steps of a block, steps of partial blocks

  StepWalk() = default; ///< unusable until assigned to

  /// Returns the walk without steps.
  ATTNC_DEVICE static StepWalk none(int length) {
    StepWalk walk;
    walk.length = length, walk.count = walk.all = 0;
    return walk;
  }

  /// Takes all positions.
  ATTNC_DEVICE explicit StepWalk(int length) : length(length), all((length + Size - 1) / Size), count(all) {
    static_assert(Source == StepSource::All);
  }

  /// Takes the positions within bounds, clipped to [0, length).
  ATTNC_DEVICE StepWalk(int length, TileBounds bounds) : length(length) {
    static_assert(Source == StepSource::Bounds);
    first = max(bounds.begin, 0) / Size;
    count = all = max((min(bounds.end, length) + Size - 1) / Size - first, 0);
    full_begin = bounds.full_begin;
    full_end = bounds.full_end;
  }

  /// Takes the positions of listed blocks.
  ATTNC_DEVICE StepWalk(int length, const BlockRow& row)
      : length(length), partial_index(row.partial_index), full_index(row.full_index) {
    static_assert(Source == StepSource::Lists);
    log2_steps = 31 - __clz(row.block / Size);
    partial_steps = row.partial_count << log2_steps;
    count = all = partial_steps + (row.full_count << log2_steps);
  }

  /// Keeps one of `parts` parts of the steps; their sizes differ by one step at most.
  ATTNC_DEVICE void keep_part(int part, int parts) {
    skipped = int((long long)all * part / parts);
    count = int((long long)all * (part + 1) / parts) - skipped;
  }

  /// Keeps the steps [begin, end), clipped to those that exist.
  ATTNC_DEVICE void keep_steps(int begin, int end) {
    skipped = begin;
    count = max(min(end, all) - begin, 0);
  }

  /// Returns step i < count. If the tile has no steps, step 0 lies past the end, so that its rows come out as fully
  /// masked.
  ATTNC_DEVICE Step at(int i) const {
    if (i >= count) return {(max(length, 1) + Size - 1) / Size * Size, kStepTail | kStepFirst | kStepLast};
    const int start = start_of(i);
    return {start, flags_of(i, start)};
  }

  /// The two parts of at(), for kernels that have no register to spare for flags.
  ATTNC_DEVICE int start_of(int i) const {
    const int index = skipped + i;
    if constexpr (Source == StepSource::Lists) {
      const bool masked = index < partial_steps;
      const int j = (masked ? partial_steps : all) - 1 - index;
      const int block = max((masked ? partial_index : full_index)[j >> log2_steps], 0);
      return ((block << log2_steps) + (j & ((1 << log2_steps) - 1))) * Size;
    } else {
      return (first + all - 1 - index) * Size;
    }
  }
  ATTNC_DEVICE int flags_of(int i, int start) const {
    int flags = kStepMasked;
    if constexpr (Source == StepSource::Lists) flags = skipped + i < partial_steps ? kStepMasked : 0;
    if constexpr (Source == StepSource::Bounds)
      flags = start >= full_begin && min(start + Size, length) <= full_end ? 0 : kStepMasked;
    if (!HasMask) flags = 0;
    if (start + Size > length) flags |= kStepTail;
    if (i == 0) flags |= kStepFirst;
    if (all * Size <= kFewColumns) flags |= kStepFew;
    if (i + 1 == count) flags |= kStepLast;
    return flags;
  }
};

} // namespace attnc
