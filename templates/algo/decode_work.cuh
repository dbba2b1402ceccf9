// Deals split-KV work to CTAs. An item is a tile of packed rows of a (batch, KV head); its length is its live steps
// along KV, at least one. Only the device knows lengths and bounds, so each CTA counts for itself.
//
// There are two ways, and all CTAs choose the same one:
//   pieces   each item is cut into equal pieces; a CTA takes one piece
//   shares   all items are laid end to end; a CTA takes an equal share of the steps: an item's end, whole items, the
//            beginning of another
// Shares differ by one step at most. But an item's end costs a CTA the time of some steps, and a share may have one
// more end.
//
// CTAs may form teams, one for each tile of a head. A team deals its items among its CTAs in the same way. So all tiles
// of a head are at the same columns at the same time, and find K and V in L2.
#pragma once

#include "attnc_mod.cuh"

#include "algo/kv_walk.cuh"
#include "algo/packed_rows.cuh"

namespace attnc {

/// Steps dealt to CTAs in equal shares.
struct Shares {
  int each, rest; ///< steps of a share; how many shares have one more
  ATTNC_DEVICE Shares(int steps, int ctas) : each(steps / ctas), rest(steps % ctas) {}

  /// Returns the first step of a CTA; for CTAs past the last one, the number of all steps.
  ATTNC_DEVICE int begin(int cta) const { return cta * each + min(cta, rest); }
  ATTNC_DEVICE int owner(int step) const {
    const int large = rest * (each + 1); // steps of the larger shares
    return step < large ? step / (each + 1) : rest + (step - large) / each;
  }
};

/// The steps of an item that a CTA takes, and which CTAs take the others.
struct ItemShare {
  int item;
  int begin, end; ///< this CTA's steps of the item
  int first_cta;  ///< the first of the consecutive CTAs that share the item
  int parts;      ///< how many CTAs share it
  int place;      ///< where the first CTA keeps its part: 1 if the item begins within its share, else 0. Other CTAs: 0
  ATTNC_DEVICE bool is_whole() const { return parts == 1; }
  ATTNC_DEVICE int own_place() const { return int(blockIdx.x) == first_cta ? place : 0; }
};

/// Whether lists from decode_lists.cu say which steps live. Mods with bounds compute them instead. In a ragged batch
/// all steps of a sequence live.
template <class M> constexpr bool kListsSteps = M::kHasMaskMod && !M::kHasBounds && !kIsRagged<M>;

template <class M, int Size> using PackedWalk = KvWalk<M, Size, kListsSteps<M>>;

/// Returns the steps that some row of a packed tile visits.
template <class M, int Size, class Args>
ATTNC_DEVICE PackedWalk<M, Size> walk_packed(const PackedParams& p, const Args& args, const PackedTile& tile) {
  using Walk = PackedWalk<M, Size>;
  const int h = tile.kv_head * p.group;
  if constexpr (kChooses<M>)
    if (variant_of<M>(args, tile.b, h) < 0) return Walk::none(kv_length_of<M>(p, args, tile.b, h));
  if constexpr (kListsSteps<M>) {
    const BlockLists& lists = p.lists;
    const long long item = tile.b * lists.batch_stride + tile.kv_head * lists.head_stride + tile.first / lists.q_block;
    const BlockRow row(lists.partial_index + item * lists.index_stride, lists.partial_count[item], Size);
    return Walk(kv_length_of<M>(p, args, tile.b, h), row);
  } else if constexpr (M::kHasBounds) {
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
      if (was_empty)
        all.begin = one.begin, all.end = one.end;
      else if (!is_empty)
        all.begin = min(all.begin, one.begin), all.end = max(all.end, one.end);
    }
    return Walk(length, all);
  } else {
    return Walk(kv_length_of<M>(p, args, tile.b, h));
  }
}

/// Whether all items have one length, so that the host deals them: EqualItems.
template <class M> constexpr bool kEqualItems = !kHasLengths<M> && !M::kHasBounds && !kListsSteps<M>;

/// All items of a launch. `Rows`: rows of a tile. `Size`: columns of a step.
template <class M, int Rows, int Size> struct DecodeItems {
  using Walk = PackedWalk<M, Size>;
  int tiles; ///< tiles of a (batch, KV head); for a ragged batch, slots of a KV head
  int count;

  ATTNC_DEVICE explicit DecodeItems(const PackedParams& p)
      : tiles(p.by_tiles.divisor), count((kIsRagged<M> ? 1 : p.batch) * p.kv_heads * tiles) {}

  /// Returns an item's tile. In a ragged batch a slot may be unused; its tile has no rows.
  template <class Args> ATTNC_DEVICE PackedTile tile(const PackedParams& p, const Args& args, int item) const {
    const int of_head = p.by_tiles.quotient(item), tile_of_head = item - of_head * tiles;
    if constexpr (kIsRagged<M>) {
      const auto first_row = [&](int b) { return q_start_of<M>(args, b) * p.group; };
      const RowTile tile = tile_in_slot<Rows>(tile_of_head, p.batch, first_row);
      const int length = q_length_of<M>(p, args, tile.b) * p.group;
      return {tile.b, of_head, tile.start, has_rows<M>(tile.start, length) ? min(length - tile.start, Rows) : 0,
              SequenceStart<M>(p, args, tile.b)};
    }
    const int first = tile_of_head * Rows, b = p.by_kv_heads.quotient(of_head);
    return {b, of_head - b * p.kv_heads, first, min(p.q_len * p.group - first, Rows)};
  }
  template <class Args> ATTNC_DEVICE Walk walk(const PackedParams& p, const Args& args, const PackedTile& tile) const {
    return walk_packed<M, Size>(p, args, tile);
  }
  template <class Args> ATTNC_DEVICE int length(const PackedParams& p, const Args& args, int item) const {
    const PackedTile of = tile(p, args, item);
    if (kIsRagged<M> && of.rows == 0) return 0;
    return max(walk(p, args, of).count, 1);
  }
};

/// A share of an item, about to be walked.
template <class Walk> struct DecodeWork {
  ItemShare share;
  PackedTile tile;
  Walk walk;
};

/// The CTAs among which items are dealt: all of the grid.
struct WholeGrid {
  ATTNC_DEVICE explicit WholeGrid(int) {}
  ATTNC_DEVICE int ctas() const { return int(gridDim.x); }
  ATTNC_DEVICE int number() const { return int(blockIdx.x); } ///< this CTA's, among them
  ATTNC_DEVICE bool is_idle() const { return false; }
  ATTNC_DEVICE int first_cta() const { return 0; }
  ATTNC_DEVICE int items(int of_grid) const { return of_grid; }
  ATTNC_DEVICE int item(int i) const { return i; } ///< the i-th of these items
};

/// One of `teams` teams, which are as many as the tiles of a head, or 1.
struct Team {
  int teams, of_team, index; ///< how many teams; CTAs of each; this CTA's team
  ATTNC_DEVICE explicit Team(int teams)
      : teams(teams), of_team(int(gridDim.x) / teams), index(int(blockIdx.x) / of_team) {}
  ATTNC_DEVICE int ctas() const { return of_team; }
  ATTNC_DEVICE int number() const { return int(blockIdx.x) - first_cta(); }
  ATTNC_DEVICE bool is_idle() const { return index >= teams; } ///< one of the CTAs that are left over
  ATTNC_DEVICE int first_cta() const { return index * of_team; }
  ATTNC_DEVICE int items(int of_grid) const { return of_grid / teams; }
  ATTNC_DEVICE int item(int i) const { return i * teams + index; }
};

/// The shares of one CTA: call next() until it returns false. All threads call together. Among: WholeGrid or Team.
template <class M, int Rows, int Size, int Threads, class Among = WholeGrid> class DecodeDealer {
public:
  using Items = DecodeItems<M, Rows, Size>;
  using Work = DecodeWork<typename Items::Walk>;

  /// `shared`: Threads / 32 + 2 words of the CTA's shared memory.
  template <class Args>
  ATTNC_DEVICE DecodeDealer(const DecodeParams& decode, const Args& args, int* shared, int teams = 1)
      : items(decode.forward), among(teams), shares(1, 1), item(int(blockIdx.x)) {
    if (!decode.part_out || items.count == 0) return;
    if (among.is_idle()) {
      way = Pieces;
      return;
    }
    if constexpr (kEqualItems<M>) {
      const EqualItems& equal = decode.equal;
      shares.each = equal.by_each.divisor, shares.rest = equal.rest;
      way = equal.in_pieces ? Pieces : InShares;
      take(equal.by_units.divisor * count());
      item = equal.by_units.quotient(first);
      before = item * equal.by_units.divisor;
    } else {
      find(decode.forward, args, shared);
    }
  }

  template <class Args> ATTNC_DEVICE bool next(const DecodeParams& decode, const Args& args, Work& work) {
    const PackedParams& p = decode.forward;
    const int cta = int(blockIdx.x);
    if (way == Undivided ? item >= items.count : first >= end) return false;
    work.tile = items.tile(p, args, number_of(item));
    if constexpr (kIsRagged<M>)
      while (work.tile.rows == 0) { // if steps are divided, a used slot follows
        item += way == Undivided ? int(gridDim.x) : 1;
        if (item >= items.count) return false;
        work.tile = items.tile(p, args, number_of(item));
      }
    work.walk = items.walk(p, args, work.tile);
    const int length = max(work.walk.count, 1);
    ItemShare& share = work.share;
    if (way == Undivided) {
      share = {item, 0, length, cta, 1, 0};
      item += int(gridDim.x);
    } else if (way == Pieces) {
      const int part = first - before;
      if constexpr (kEqualItems<M>) {
        const Divisor& by = decode.equal.by_units;
        share = {number_of(item),
                 by.quotient(length * part),
                 by.quotient(length * (part + 1)),
                 among.first_cta() + before,
                 by.divisor,
                 0};
      } else {
        const int parts = pieces_of(length);
        share = {
            number_of(item), length * part / parts, length * (part + 1) / parts, among.first_cta() + before, parts, 0};
      }
      first = end;
    } else {
      const int first_cta = owner(decode, before), last_cta = owner(decode, before + length - 1);
      share = {number_of(item),           first - before,
               min(end - before, length), among.first_cta() + first_cta,
               last_cta - first_cta + 1,  before > shares.begin(first_cta) ? 1 : 0};
      first = before += length;
      ++item;
    }
    work.walk.keep_steps(share.begin, share.end);
    return true;
  }

private:
  enum Way { Undivided, Pieces, InShares };

  Items items;
  Among among;
  Shares shares;
  Way way = Undivided;
  int piece = 0;          // most steps of a piece; 0: there are more items than CTAs
  int item;               // the next one: of those that are dealt, or of all if they are undivided
  int before = 0;         // units (steps or pieces) of the items before it
  int first = 0, end = 0; // this CTA's units that are not done yet

  ATTNC_DEVICE int owner(const DecodeParams& decode, int step) const {
    if constexpr (kEqualItems<M>) {
      const EqualItems& equal = decode.equal;
      const int large = equal.rest * equal.by_more.divisor;
      return step < large ? equal.by_more.quotient(step) : equal.rest + equal.by_each.quotient(step - large);
    } else {
      return shares.owner(step);
    }
  }
  /// Returns how many items are dealt among these CTAs.
  ATTNC_DEVICE int count() const { return among.items(items.count); }
  ATTNC_DEVICE int number_of(int i) const { return way == Undivided ? i : among.item(i); }
  ATTNC_DEVICE int pieces_of(int length) const { return (length + piece - 1) / piece; }
  ATTNC_DEVICE int units_of(int length) const { return way == Pieces ? pieces_of(length) : length; }

  ATTNC_DEVICE void settle(int steps) {
    shares = Shares(steps, max(min(among.ctas(), steps), 1)); // a ragged batch may have no steps
    way = piece && piece <= shares.each + kStepsOfEnd ? Pieces : InShares;
  }
  ATTNC_DEVICE void take(int units) {
    const int cta = among.number();
    first = way == Pieces ? cta : shares.begin(cta);
    end = min(way == Pieces ? cta + 1 : shares.begin(cta + 1), units);
  }

  /// Sums over the threads before this one, and over all. Called by the whole CTA.
  struct Sum {
    int before, all;
  };
  ATTNC_DEVICE static Sum sum_up(int own, int* shared) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int upto = own; // sum over the warp up to and including this lane
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int below = __shfl_up_sync(0xffffffffu, upto, distance);
      if (lane >= distance) upto += below;
    }
    __syncthreads();
    if (lane == 31) shared[warp] = upto;
    __syncthreads();
    Sum sum = {upto - own, 0};
#pragma unroll
    for (int w = 0; w < Threads / 32; ++w) {
      if (w < warp) sum.before += shared[w];
      sum.all += shared[w];
    }
    return sum;
  }

  /// Finds this CTA's first unit. Each thread counts the steps of a run of items, and their pieces if these are chosen.
  /// The thread whose run holds the first unit walks its run again up to there. A run of one item, the usual case, is
  /// looked at once.
  template <class Args> ATTNC_DEVICE void find(const PackedParams& p, const Args& args, int* shared) {
    const int run = (count() + Threads - 1) / Threads;
    const int begin_item = min(int(threadIdx.x) * run, count()), end_item = min(begin_item + run, count());
    enum { Steps, Units, Search } pass = Steps;
    int length = 0;
    Sum sum = {0, 0};
#pragma unroll 1
    while (true) {
      const int most = pass == Search ? first - sum.before : 0x7fffffff;
      int own = 0, i = begin_item;
#pragma unroll 1
      for (; i < end_item; ++i) {
        if (pass == Steps || run > 1) length = items.length(p, args, among.item(i));
        const int units = units_of(length);
        if (units > most - own) break;
        own += units;
      }
      if (pass == Search) {
        if (i < end_item && most >= 0) {
          shared[Threads / 32] = i;
          shared[Threads / 32 + 1] = sum.before + own;
        }
        break;
      }
      sum = sum_up(own, shared);
      if (pass == Steps) {
        // At most as many pieces as CTAs: all steps cut into pieces, plus one more per item for its remainder.
        const int spare = among.ctas() - count();
        if (spare > 0) piece = (sum.all + spare - 1) / spare;
        settle(sum.all);
      }
      pass = pass == Steps && way == Pieces ? Units : Search;
      if (pass == Search) take(sum.all);
    }
    __syncthreads();
    item = shared[Threads / 32];
    before = shared[Threads / 32 + 1];
  }
};

} // namespace attnc
