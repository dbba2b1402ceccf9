// Shared by the Hopper backward kernels that walk rows of Q: the producer, which fills the rings of Q, dO, K and V, and
// the stores of dK and dV.
//
// A CTA owns kBlockN rows of K and V, which stay in shared memory. It walks Q in steps of kBlockM rows, for all query
// heads of its KV head (and for all batches if K and V are broadcast), or for one of them (kDividesGroups).
//
// The message with Q: the step's start, StepFlags, b, h; b < 0: no more steps.
#pragma once

#include "attnc_mod.cuh"

#include "algo/backward_tiles_sm90.cuh"
#include "algo/q_walk.cuh"
#include "algo/transposed_scores.cuh"
#include "algo/turns.cuh"
#include "params_sm90.cuh"
#include "ptx/tma.cuh"
#include "tile/request_tile.cuh"
#include "tile/store_wgmma.cuh"

namespace attnc::sm90 {

using Table = RowTable<Mod, kBlockM>;

struct QRing : QRingOf<1> {};
using RowsCleared = NamedBarriers<1, 128>; // by consumer of a ragged batch

struct Rows : SharedPart<Rows, kQStages * Table::kBytes> {};
/// With kTakesTurns: turn_of() of step j, in slot j % 8. Needs no barriers: the producer reaches step j + 5 only after
/// the storer has read the turn of step j.
struct Turns : SharedPart<Turns, kTakesTurns ? 4 * 8 : 0, 16> {};
template <class Memory> ATTNC_DEVICE unsigned turn_at(unsigned shared, int step) {
  return shared + Memory::template offset_of<Turns>() + step % 8 * 4;
}

/// Whether consumers have too few registers to keep the head of a step, or its tile of Q: backward_192_sm90.cu. Then
/// flags in a message say more: kStepFirst, the first step of a query head; kNoStep, no step follows; kKvTail, KV ends
/// within the CTA's rows. The storer finds the tile in Targets.
constexpr bool kSparesConsumers = kBlockN == 128 && kHeadDimQk > 128;
constexpr int kNoStep = 64, kKvTail = 128;
/// With kSparesConsumers: the message with Q of step j, in slot j % 8; as for Turns, no barriers.
struct Targets : SharedPart<Targets, kSparesConsumers ? 16 * 8 : 0, 16> {};
template <class Memory> ATTNC_DEVICE unsigned target_at(unsigned shared, int step) {
  return shared + Memory::template offset_of<Targets>() + step % 8 * 16;
}

/// Which rows of K and V the CTA owns, for the consumers: finding out takes some 200 instructions. The producer writes
/// it before it arrives at kv_full.
struct OwnPlace : SharedPart<OwnPlace, 16, 16> {};

template <class Memory> ATTNC_DEVICE Table table_of(unsigned shared, int slot) {
  return {shared + Memory::template offset_of<Rows>() + slot * Table::kBytes};
}

/// Whether each query head has CTAs of its own, also where several share a KV head: algo/kv_sums.cuh. Wide heads only,
/// whose sums of dK and dV are worth more than reading K and V once for all.
constexpr bool kDividesGroups = kBlockN == 64;

/// Which rows of K and V a CTA owns. Heads are grouped into sections whose Q and dO fit into L2. Within a section, the
/// first KV tiles of all heads come first: most rows of Q tend to see them.
struct KvTilePlace {
  int b, head, start;
  int sharer = 0; ///< with kDividesGroups: which of the query heads that share the KV head
  int tile;       ///< with kDividesGroups: counted over all KV heads

  /// Takes a place out of OwnPlace.
  ATTNC_DEVICE explicit KvTilePlace(const int (&x)[4]) : b(x[0]), head(x[1]), start(x[2]) {}

  // NOTE: constructed again at each use, because registers are scarce in between.
  ATTNC_DEVICE KvTilePlace(const BackwardParamsSm90& p, const ModArgs& args) {
    const ForwardParams& f = p.base.forward;
    const int index = ptx::opaque(blockIdx.x);
    if constexpr (kDividesGroups) {
      const int tiles = kv_tiles_of<Mod, kBlockN>(f);
      const int heads = f.kv_heads * (kIsRagged<Mod> ? 1 : p.base.kv_batch) * p.sharers;
      const int per_section = tiles * p.section, first = index / per_section * p.section;
      const int within = index % per_section, section = min(p.section, heads - first);
      const int at = first + within % section, slot = within / section, kv_head = at / p.sharers;
      sharer = at % p.sharers;
      tile = kv_head * tiles + slot;
      b = kv_head / f.kv_heads;
      head = kv_head % f.kv_heads;
      start = slot * kBlockN;
      if constexpr (kIsRagged<Mod>) {
        const RowTile of_sequence = kv_tile_in_slot<Mod, kBlockN>(args, slot, f.batch);
        b = of_sequence.b, start = of_sequence.start;
      }
      return;
    }
    if constexpr (kIsRagged<Mod>) {
      const int tiles = slots_of<kBlockN>(f.rows.kv, f.batch), per_section = tiles * p.section;
      const int first = index / per_section * p.section, within = index % per_section;
      const int section = min(p.section, f.kv_heads - first);
      const RowTile tile = kv_tile_in_slot<Mod, kBlockN>(args, within / section, f.batch);
      b = tile.b, head = first + within % section, start = tile.start;
      return;
    }
    const int tiles = (f.kv_len + kBlockN - 1) / kBlockN, heads = f.kv_heads * p.base.kv_batch;
    const int per_section = tiles * p.section, first = index / per_section * p.section;
    const int within = index % per_section, section = min(p.section, heads - first);
    const int at = first + within % section;
    b = at / f.kv_heads;
    head = at % f.kv_heads;
    start = within / section * kBlockN;
  }
};

/// Zeroes the rows of `tile` behind its first `live` ones, in a tile where a sequence of a ragged batch ends. TMA has
/// loaded rows of the next sequence there, and even 0 times these may be NaN. Each warpgroup clears the whole tile for
/// itself, so it waits for no other; the warpgroups write the same zeros.
template <class Tile> ATTNC_DEVICE void clear_rows_behind(Tile tile, int live, int group) {
#pragma unroll
  for (int slab = 0; slab < Tile::kSlabs; ++slab)
#pragma unroll 1
    for (int at = live * Tile::kRowBytes + threadIdx.x % 128 * 16; at < Tile::kSlabBytes; at += 128 * 16)
      ptx::st_shared(tile.slab(slab) + at, {0, 0, 0, 0});
  ptx::fence_proxy_async();
  RowsCleared::sync(group);
}
/// The same for the tile of K in which a sequence ends. live: its rows of the tile; below 1: it is padding, which no
/// step reads.
template <class Tile> ATTNC_DEVICE void clear_kv_tail(Tile tile, int live, int group) {
  if (kHasLengths<Mod> && (kIsRagged<Mod> || live > 0)) clear_rows_behind(tile, live, group);
}
/// Factor of the live row count packed into a step's flags, for the consumers that clear the other rows.
constexpr int kLiveRows = 256;
ATTNC_DEVICE int with_live_rows(Step step, int q_len) {
  return step.flags & kStepTail ? step.flags | (q_len - step.start) * kLiveRows : step.flags;
}
template <class Tile> ATTNC_DEVICE void clear_tail(Tile tile, int flags, int group) {
  if constexpr (kIsRagged<Mod>)
    if (flags & kStepTail) [[unlikely]]
      clear_rows_behind(tile, flags / kLiveRows, group);
}

/// Epilogue: stores a warpgroup's dK or dV, `Columns` columns times `factor`. Its rows begin `row_of_tile` rows behind
/// the tile's first one.
template <int Columns, class Out>
ATTNC_DEVICE void store_gradient(const Out& x, float factor, void* to, const Strides& stride, const KvTilePlace& tile,
                                 int row_of_tile, int kv_len) {
  Element* base = (Element*)to + tile.b * stride.batch + tile.head * stride.head;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = tile.start + row_of_tile + 8 * r;
    wgmma::store_row<Columns>(base + row * stride.row, x, r, factor, row < kv_len);
  }
}

/// The same by way of the warpgroup's own 64 rows of V, whose products are complete: so that lanes store whole rows.
template <int Columns, class Out>
ATTNC_DEVICE void store_by(VTile v, int group, const Out& x, float factor, void* to, const Strides& stride,
                           const KvTilePlace& tile, int kv_len) {
  const int row = 64 * group + ptx::opaque(threadIdx.x) / 32 % 4 * 16; // the warp's first one
  Element* base = (Element*)to + tile.b * stride.batch + tile.head * stride.head + (tile.start + row) * stride.row;
  wgmma::store_rows<Columns>(base, stride.row, kv_len - tile.start - row, x, factor, v.chunk(row, 0));
}

constexpr int kAllSteps = 0x7fffffff, kStepsOfHead = 1536 / kBlockM; // more than a window of 1024 takes

/// The producer warp: issues TMA loads of K and V, then of Q and dO for each step, and fills the table of rows.
template <class Memory> struct Producer {
  const BackwardParamsSm90& p;
  const ModArgs& args;
  unsigned shared;
  const bool leads = threadIdx.x == 0;
  Ring<Memory, QRing> q = {shared};
  Ring<Memory, ORing> o = {shared};
  int steps = 0;
  bool is_first = true; ///< with kSparesConsumers: whether the next step is the first one of a query head

  ATTNC_DEVICE void request_kv(const KvTilePlace& tile) {
    if (!leads) return;
    if constexpr (!kDividesGroups)
      ptx::st_shared(shared + Memory::template offset_of<OwnPlace>(), {tile.b, tile.head, tile.start, 0});
    const unsigned full = Barriers<Memory, KvFull>{shared}[0];
    ptx::mbarrier_arrive_expect_tx(full, KTile::kBytes + VTile::kBytes);
    const int row = kv_row_of<Mod>(args, tile.b, tile.start);
    request_tile(k_tile_of<Memory>(shared), p.k, full, row, tile.head, tile.b * p.k_batch_step);
    request_tile(v_tile_of<Memory>(shared), p.v, full, row, tile.head, tile.b * p.v_batch_step);
  }

  ATTNC_DEVICE void request_step(const BackwardParams& base, Step step, const Mod::Head& head, int b, int h,
                                 int kv_start) {
    const ForwardParams& f = base.forward;
    if (kBlockSparse && kIsRagged<Mod> && step.start >= f.q_len) return; // a step of a longer sequence
    constexpr int kEach = kBlockM / 32;                                  // rows per lane
    float lse[kEach], delta[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const long long index = row_of_all(f, b, h, min(step.start + 32 * i + int(threadIdx.x), f.q_len - 1));
      lse[i] = f.lse[index];
      delta[i] = base.delta[index];
    }
    int turn = 0;
    if constexpr (kTakesTurns)
      turn = turn_of<Mod, kBlockM, kBlockSparse>(base, p.base, p.visits, args, head, b, h, step.start, kv_start);
    q.acquire();
    if constexpr (kSparesConsumers) {
      step.flags |= (is_first ? kStepFirst : 0) | (kv_start + kBlockN > f.kv_len ? kKvTail : 0);
      is_first = false;
    }
    if (kTakesTurns && leads) ptx::st_shared(turn_at<Memory>(shared, steps), turn);
    if (leads) {
      const int message[4] = {step.start, kIsRagged<Mod> ? with_live_rows(step, f.q_len) : step.flags, b, h};
      q.write_message(message);
      if constexpr (kSparesConsumers) ptx::st_shared(target_at<Memory>(shared, steps), message);
      ptx::mbarrier_expect_tx(q.full(), QTile::kBytes);
      request_tile(q.tile(), p.q, q.full(), q_row_of<Mod>(args, b, step.start), h, b * p.q_batch_step);
    }
    o.acquire();
    if (leads) {
      ptx::mbarrier_arrive_expect_tx(o.full(), OTile::kBytes);
      request_tile(o.tile(), p.d_out, o.full(), q_row_of<Mod>(args, b, step.start), h, b * p.d_out_batch_step);
    }
    const Table table = table_of<Memory>(shared, q.slot);
    const int origin = Mod::kAnyOrigin ? kv_start : 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      table.fill(f, args, head, b, h, step, 32 * i + int(threadIdx.x), origin, lse[i], delta[i]);
    __syncwarp();
    if (leads) ptx::mbarrier_arrive(q.full());
    q.advance();
    o.advance();
    ++steps;
  }

  /// Whether a step has rows. A listed block may reach past the end by whole steps, or be none, and for these no dQ
  /// sums exist.
  ATTNC_DEVICE bool exists(Step step) const {
    return !kBlockSparse || unsigned(step.start) < unsigned(p.base.forward.q_len);
  }

  /// Requests all steps of query head h in descending order. A CTA then waits for one step of the CTA before it; with
  /// partial blocks first, it would wait for nearly all.
  ATTNC_DEVICE void request_descending(const BackwardParams& base, const KvTilePlace& tile, int b, int h,
                                       const Mod::Head& head) {
    const BlockLists& columns = base.columns;
    DescendingBlocks blocks{BlockRow(columns, b, h, tile.start / columns.kv_block, columns.q_block)};
#pragma unroll 1
    while (!blocks.is_empty()) {
      bool is_partial;
      const int start = blocks.take(is_partial) * blocks.row.block;
#pragma unroll 1
      for (int at = start + blocks.row.block - kBlockM; at >= start; at -= kBlockM) {
        const int tail = at + kBlockM > base.forward.q_len ? kStepTail : 0;
        const Step step = {at, tail | (Mod::kHasMaskMod && is_partial ? kStepMasked : 0)};
        if (exists(step)) request_step(base, step, head, b, h, tile.start);
      }
    }
  }

  /// Requests steps [first, first + most) of the i-th query head that shares the KV head. Returns whether there are
  /// more.
  ATTNC_DEVICE bool request_steps(const BackwardParams& base, const KvTilePlace& tile, int i, int first, int most) {
    const ForwardParams& f = base.forward;
    const int b = tile.b + i / f.group, h = tile.head * f.group + i % f.group;
    const Mod::Head head = Mod::head(args, b, h); // SEAM(head)
    is_first = true;
    if constexpr (kDeterministic && kBlockSparse) {
      request_descending(base, tile, b, h, head);
      return false;
    }
    const int kv_end = min(tile.start + kBlockN, f.kv_len);
    const auto walk = walk_q<Mod, kBlockM, kBlockSparse>(base, args, b, h, tile.start, kv_end);
    const int end = walk.count - first > most ? first + most : walk.count;
    if constexpr (kBlockSparse && kBlockN == 128) {
      Step step = walk.at(first);
#pragma unroll 1
      for (int j = first; j < end; ++j) {
        const Step next = walk.at(j + 1); // early: this loads from the lists
        if (exists(step)) request_step(base, step, head, b, h, tile.start);
        step = next;
      }
    } else {
#pragma unroll 1
      for (int j = first; j < end; ++j)
        if (const Step step = walk.at(j); exists(step)) request_step(base, step, head, b, h, tile.start);
    }
    return walk.count > end;
  }

  ATTNC_DEVICE void run() {
    const KvTilePlace tile(p, args);
    const BackwardParams& base = params_of<Mod>(p.base, args, tile.b);
    const ForwardParams& f = base.forward;
    request_kv(tile);
    const int heads = batches_of_kv<Mod>(base, tile.start) * f.group;
    if constexpr (kDividesGroups) {
      if (tile.sharer < heads) request_steps(base, tile, tile.sharer, 0, kAllSteps); // there may be no query head
    } else if (heads == 1) {
#pragma unroll 1
      for (int i = 0; i < heads; ++i) request_steps(base, tile, i, 0, kAllSteps);
    } else {
      // Takes some steps of each head, then the next ones of each. The CTAs of one KV head have walks of different
      // lengths; this keeps them near one another, so what they read and add to is in L2.
      bool more = true;
#pragma unroll 1
      for (int first = 0; more; first += kStepsOfHead) {
        more = false;
#pragma unroll 1
        for (int i = 0; i < heads; ++i) more |= request_steps(base, tile, i, first, kStepsOfHead);
      }
    }
    q.acquire();
    if (leads) {
      q.write_message({0, kSparesConsumers ? kNoStep : 0, -1, 0});
      ptx::mbarrier_arrive(q.full());
    }
  }
};

/// Begins a CTA. Returns whether it owns rows: of a ragged batch it may own none.
template <class Memory> ATTNC_DEVICE bool begin(unsigned shared, const BackwardParamsSm90& p, const ModArgs& args) {
  if constexpr (kIsRagged<Mod>) {
    const KvTilePlace tile(p, args);
    if (!has_rows<Mod>(tile.start, kv_length_of<Mod>(p.base.forward, args, tile.b, 0))) return false;
  }
  initialise<Memory>(shared, [&] { ptx::prefetch_tensor_maps(p.q, p.k, p.v, p.d_out); });
  return true;
}

} // namespace attnc::sm90
