// How work that is divided along KV is dealt to CTAs. An item is a tile of packed rows of a (batch, KV head); its length is
// the steps along KV that live, at least one. All items stand one behind the other, and each CTA takes an equal share of
// their steps: the end of an item, whole items, the beginning of one. Lengths and bounds are known on the device only, so
// each CTA counts for itself.
#pragma once

#include "attnc_mod.cuh"

#include "algo/kv_walk.cuh"
#include "algo/packed_rows.cuh"

namespace attnc {

/// Fewer steps are not worth a CTA.
constexpr int kLeastSteps = 2;

/// The CTAs that steps are dealt to, and their shares.
struct Shares {
  int steps, ctas; ///< at least one CTA, and no more than steps

  ATTNC_DEVICE Shares(int steps, int ctas)
      : steps(steps), ctas(max(min(ctas, (steps + kLeastSteps - 1) / kLeastSteps), 1)) {}

  /// The first step of a CTA; of one past the last: all steps.
  ATTNC_DEVICE int begin(int cta) const { return int((long long)steps * cta / ctas); }
  ATTNC_DEVICE int owner(int step) const {
    int cta = int((long long)step * ctas / steps);
    while (begin(cta + 1) <= step) ++cta;
    return cta;
  }
};

/// The steps of an item that a CTA takes, and who has the others.
struct ItemShare {
  int item;
  int begin, end; ///< steps of the item that are this CTA's
  int start;      ///< of the item, among all steps
  int length;     ///< of the item
  ATTNC_DEVICE bool is_whole() const { return begin == 0 && end == length; }
};

/// Where a CTA keeps its part of an item that begins at step `start`: 0, if its share begins there or within.
ATTNC_DEVICE int part_place(const Shares& shares, int cta, int start) { return start > shares.begin(cta) ? 1 : 0; }

/// The steps that some row of a packed tile visits.
template <class M, int Size, class Args>
ATTNC_DEVICE KvWalk<M, Size, false> walk_packed(const ForwardParams& p, const Args& args, const PackedTile& tile) {
  using Walk = KvWalk<M, Size, false>;
  const int h = tile.kv_head * p.group;
  if constexpr (M::kHasBounds) {
    TileBounds all = {};
    int length = 0;
    for (int i = 0; i < p.group; ++i) {
      const auto head = M::head(args, tile.b, h + i); // SEAM(head)
      const int offset = q_offset<M>(args, head);
      const TileBounds one = M::bounds(args, head, tile.b, h + i, offset + tile.token(p, 0),
                                       offset + tile.token(p, tile.rows - 1) + 1); // SEAM(bounds)
      length = kv_length<M>(p, args, head);
      if (i == 0) {
        all = one;
        continue;
      }
      const bool is_empty = one.begin >= one.end, was_empty = all.begin >= all.end;
      all.full_begin = max(all.full_begin, one.full_begin);
      all.full_end = min(all.full_end, one.full_end);
      if (was_empty) all.begin = one.begin, all.end = one.end;
      else if (!is_empty) all.begin = min(all.begin, one.begin), all.end = max(all.end, one.end);
    }
    return Walk(length, all);
  } else {
    return Walk(kv_length_of<M>(p, args, tile.b, h));
  }
}

/// All items of a launch. `Rows`: of a tile. `Size`: columns of a step.
template <class M, int Rows, int Size> struct DecodeItems {
  using Walk = KvWalk<M, Size, false>;
  int tiles; ///< of a (batch, KV head); of a ragged batch, slots of a KV head
  int count;

  ATTNC_DEVICE explicit DecodeItems(const ForwardParams& p)
      : tiles(kIsRagged<M> ? slots_of<Rows>(p.rows.q * p.group, p.batch) : (p.q_len * p.group + Rows - 1) / Rows),
        count((kIsRagged<M> ? 1 : p.batch) * p.kv_heads * tiles) {}

  /// Of a ragged batch it may have no rows: its slot is not used.
  template <class Args> ATTNC_DEVICE PackedTile tile(const ForwardParams& p, const Args& args, int item) const {
    if constexpr (kIsRagged<M>) {
      const auto first_row = [&](int b) { return q_start_of<M>(args, b) * p.group; };
      const RowTile tile = tile_in_slot<Rows>(item % tiles, p.batch, first_row);
      const int length = q_length_of<M>(p, args, tile.b) * p.group;
      return {tile.b, item / tiles, tile.start, has_rows<M>(tile.start, length) ? min(length - tile.start, Rows) : 0};
    }
    const int first = item % tiles * Rows;
    return {item / tiles / p.kv_heads, item / tiles % p.kv_heads, first, min(p.q_len * p.group - first, Rows)};
  }
  template <class Args> ATTNC_DEVICE Walk walk(const ForwardParams& p, const Args& args, const PackedTile& tile) const {
    return walk_packed<M, Size>(p, args, tile);
  }
  template <class Args> ATTNC_DEVICE int length(const ForwardParams& p, const Args& args, int item) const {
    const PackedTile of = tile(p, args, item);
    if (kIsRagged<M> && of.rows == 0) return 0;
    return max(walk(p, args, of).count, 1);
  }
};

/// What of the items this CTA does: next() until it is false. All threads call together.
template <class M, int Rows, int Size, int Threads> class DecodeDealer {
public:
  using Items = DecodeItems<M, Rows, Size>;

  /// `shared`: Threads / 32 + 2 words of the CTA's.
  template <class Args>
  ATTNC_DEVICE DecodeDealer(const ForwardParams& p, const Args& args, bool divides, int* shared)
      : items(p), shares(1, 1), divides(divides) {
    if (!divides) {
      item = int(blockIdx.x);
      return;
    }
    if constexpr (!kHasLengths<M> && !M::kHasBounds) { // items are equal
      const int length = items.length(p, args, 0);
      take(length * items.count);
      item = step / length;
      start = item * length;
    } else {
      find(p, args, shared);
    }
  }

  template <class Args> ATTNC_DEVICE bool next(const ForwardParams& p, const Args& args, ItemShare& share) {
    if (divides ? step >= end : item >= items.count) return false;
    int length = items.length(p, args, item);
    if constexpr (kIsRagged<M>)
      while (length == 0) { // there is a longer one behind it, if steps are divided
        item += divides ? 1 : int(gridDim.x);
        if (item >= items.count) return false;
        length = items.length(p, args, item);
      }
    share = {item, 0, length, start, length};
    if (divides) {
      share.begin = step - start;
      share.end = min(end - start, length);
      step = start += length;
      ++item;
    } else {
      item += int(gridDim.x);
    }
    return true;
  }

  Items items;
  Shares shares;

private:
  bool divides;
  int item = 0, start = 0; // the next item, and where it begins
  int step = 0, end = 0;   // of this CTA's share: the next step, and the end

  ATTNC_DEVICE void take(int steps) {
    shares = Shares(steps, int(gridDim.x));
    const bool works = int(blockIdx.x) < shares.ctas;
    step = works ? shares.begin(blockIdx.x) : 0;
    end = works ? shares.begin(blockIdx.x + 1) : 0;
  }

  /// Each thread adds up the lengths of a run of items; the one whose run this CTA's first step lies in finds the item.
  template <class Args> ATTNC_DEVICE void find(const ForwardParams& p, const Args& args, int* shared) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int run = (items.count + Threads - 1) / Threads;
    const int first = min(int(threadIdx.x) * run, items.count), last = min(first + run, items.count);
    int own = 0;
    for (int i = first; i < last; ++i) own += items.length(p, args, i);
    int upto = own; // of the warp, this lane included
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int below = __shfl_up_sync(0xffffffffu, upto, distance);
      if (lane >= distance) upto += below;
    }
    if (lane == 31) shared[warp] = upto;
    __syncthreads();
    int total = 0, before = upto - own;
#pragma unroll
    for (int w = 0; w < Threads / 32; ++w) {
      if (w < warp) before += shared[w];
      total += shared[w];
    }
    take(total);
    if (before <= step && step < before + own) {
      int i = first;
      for (int length; (length = items.length(p, args, i)) <= step - before; ++i) before += length;
      shared[Threads / 32] = i;
      shared[Threads / 32 + 1] = before;
    }
    __syncthreads();
    item = shared[Threads / 32];
    start = shared[Threads / 32 + 1];
  }
};

} // namespace attnc
