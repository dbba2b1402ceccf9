// Builds BlockLists from a mask_mod: which blocks of the score matrix are empty, partial, full.
//
// A CTA owns consecutive rows of blocks; a row is one (batch, head, q block). What the mod knows of rows and columns
// has a range over a block of them. Mod::judge() tells from these ranges what a block is, if it can; only blocks that
// it leaves open are evaluated. Groups of neighbouring columns of blocks come first: their ranges fit into shared
// memory for any length. Elements past q_len or kv_len do not count, but a block that reaches past either end is never
// full, because its surplus columns must be masked.
//
// Sequences of a batch may have lengths, and offsets of queries. Then blocks are of a sequence's own rows, and judged
// by their positions; rows of blocks behind its end are empty.
//
//   shared memory  bytes               lifetime
//   groups         24 KiB at most      ranges of the groups of columns: while the head is the same
//   of_group       2 KiB at most       what each group is: a row
//   kind           a byte a thread     what each block is: kThreads blocks
//   open           4 bytes a thread    those that are not known, and how many; twice
//   listed         4 bytes a warp      how many blocks of each kind a warp lists: kThreads blocks
//
//   barrier                  when                     what it guarantees
//   __syncthreads            around filling groups    no one reads them, then they are there
//   __syncthreads            groups judged            of_group is there
//   __syncthreads_or         blocks looked up         kind is there, the counts are 0; votes: does any block live
//   __syncthreads            a list of open blocks    it is there; after the last: kind is known
//   __syncthreads_or, twice  while a block is read    votes: does any element live, is any masked
//   __syncthreads            blocks counted           listed is there
//
// All threads have one role. Grid: at most as many as rows of blocks, in one dimension. Threads: 32 kWarps.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/sequence.cuh"
#include "mod/ranges.cuh"
#include "params.cuh"

namespace attnc::block_mask {

using mod::Range;

constexpr int kThreads = 32 * kWarps;
constexpr unsigned kAll = 0xffffffffu;
constexpr int kFitting = 24 * 1024 / int(sizeof(Mod::ColRange));
constexpr int kMostGroups = kFitting < 1 ? 1 : kFitting < 2048 ? kFitting : 2048;

enum Kind : unsigned char { kEmpty, kFull, kPartial, kOpen };

struct Shared {
  Mod::ColRange groups[kMostGroups];
  Kind of_group[kMostGroups], kind[kThreads];
  int open[2][kThreads], open_count[2];
  int listed[kWarps];
};

ATTNC_DEVICE int lane() { return threadIdx.x % 32; }
ATTNC_DEVICE int warp() { return threadIdx.x / 32; }

/// Joins the ranges of all lanes.
struct JoinLanes {
  template <class T> ATTNC_DEVICE void operator()(Range<T>& range, T) const {
#pragma unroll
    for (int lanes = 16; lanes; lanes /= 2) {
      range.add(T(__shfl_xor_sync(kAll, range.lo, lanes)));
      range.add(T(__shfl_xor_sync(kAll, range.hi, lanes)));
    }
    range.is_tight = __all_sync(kAll, range.is_tight);
  }
};

/// A head, and what its hooks take.
struct HeadOf {
  const BlockMaskParams& p;
  const ModArgs& args;
  Mod::Head head;
  int b, h;
  int q_len, kv_len; // of the sequence
  int first;         // position of its first query

  ATTNC_DEVICE Mod::Row row(int q_idx) const {
    return Mod::row(args, head, b, h, q_idx, float(q_idx)); // SEAM(row)
  }
  ATTNC_DEVICE Mod::Col col(int kv_idx) const {
    return Mod::col(args, head, b, h, kv_idx, float(kv_idx), 0.f); // SEAM(col)
  }

  /// Returns the range of rows or columns [begin, end), not empty. Called by all lanes of a warp.
  template <class Ranges, int kOf, class At> ATTNC_DEVICE Ranges range_of(int begin, int end, At at) const {
    Ranges range;
    const auto first = at(min(begin + lane(), end - 1));
    Mod::each(range, first, mod::BeginRange<kOf>()); // SEAM(each)
#pragma unroll 4
    for (int i = begin + 32 + lane(); i < end; i += 32) Mod::each(range, at(i), mod::AddToRange()); // SEAM(each)
    Mod::each(range, first, JoinLanes());                                                           // SEAM(each)
    return range;
  }
  ATTNC_DEVICE Mod::RowRange rows(int begin, int end) const {
    return range_of<Mod::RowRange, mod::kRow>(begin, end, [&](int i) { return row(i); });
  }
  ATTNC_DEVICE Mod::ColRange columns(int begin, int end) const {
    return range_of<Mod::ColRange, mod::kColumn>(begin, end, [&](int i) { return col(i); });
  }
};

template <class M> ATTNC_DEVICE HeadOf head_of(const BlockMaskParams& p, const ModArgs& args, int b, int h) {
  HeadOf of{p, args, M::head(args, b, h), b, h, p.q_len, p.kv_len, 0};                  // SEAM(head)
  if constexpr (kIsRagged<M>) of.q_len = min(M::q_length(args, of.head), p.q_len);      // SEAM(q_length)
  if constexpr (kHasLengths<M>) of.kv_len = min(M::kv_length(args, of.head), p.kv_len); // SEAM(kv_length)
  of.first = q_offset<M>(args, of.head);
  return of;
}

/// Consecutive rows or columns [begin, end).
struct Span {
  int begin, end;
  ATTNC_DEVICE Span(int begin, int count, int most) : begin(begin), end(min(begin + count, most)) {}
  ATTNC_DEVICE int size() const { return end - begin; }
  ATTNC_DEVICE Range<int> range(int of) const { return Range<int>(begin, end - 1, true, of); }
};

ATTNC_DEVICE Kind judge(const HeadOf& of, const Mod::RowRange& rows, Span q, const Mod::ColRange& columns, Span kv) {
  const Range<bool> lives = Mod::judge(of.args, of.head, rows, columns, // SEAM(judge)
                                       {of.b, of.h, q.range(mod::kRow), kv.range(mod::kColumn)});
  return lives.lo ? kFull : !lives.hi ? kEmpty : lives.is_tight ? kPartial : kOpen;
}

/// Evaluates a block with all threads, until it is known.
ATTNC_DEVICE Kind read_block(const HeadOf& of, Span q, Span kv) {
  const int steps = (q.size() + kWarps - 1) / kWarps;
  bool lives = false, masks = false;
  // A warp takes rows, a lane columns: loads of a column's values coalesce. The rows of a step lie far apart, so that
  // most blocks show both kinds of elements in the first.
  for (int step = 0;; ++step) {
    const int q_idx = q.begin + warp() * steps + step;
    if (q_idx < q.end) {
      const Mod::Row row = of.row(q_idx);
      for (int kv_idx = kv.begin + lane(); kv_idx < kv.end; kv_idx += 32) {
        const bool lives_here =
            Mod::mask(of.args, of.head, row, of.col(kv_idx), {of.b, of.h, q_idx, kv_idx}); // SEAM(mask)
        lives |= lives_here;
        masks |= !lives_here;
      }
    }
    if (step % 4 != 0 && step + 1 < steps) continue;
    const bool any_lives = __syncthreads_or(lives), any_masks = __syncthreads_or(masks);
    if (any_lives && any_masks) return kPartial;
    if (step + 1 == steps) return any_lives ? kFull : kEmpty;
  }
}

/// Appends the numbers of the threads' blocks to the lists of a row, and counts them.
ATTNC_DEVICE void append(Shared& shared, const BlockMaskParams& p, long long first, int block, Kind kind, int& partial,
                         int& full) {
  const unsigned partials = __ballot_sync(kAll, kind == kPartial), fulls = __ballot_sync(kAll, kind == kFull);
  const unsigned below = (1u << lane()) - 1;
  if (lane() == 0) shared.listed[warp()] = __popc(partials) | __popc(fulls) << 16;
  __syncthreads();
  int before = 0, all = 0;
  for (int i = 0; i < kWarps; ++i) {
    if (i == warp()) before = all;
    all += shared.listed[i];
  }
  if (kind == kPartial) p.partial_index[first + partial + (before & 0xffff) + __popc(partials & below)] = block;
  if (kind == kFull) p.full_index[first + full + (before >> 16) + __popc(fulls & below)] = block;
  partial += all & 0xffff;
  full += all >> 16;
}

/// Builds the lists of one row.
ATTNC_DEVICE void list_row(Shared& shared, const HeadOf& of, long long row, Span q, int kv_blocks, int width) {
  const BlockMaskParams& p = of.p;
  const long long room = row * ((p.kv_len + p.kv_block - 1) / p.kv_block); // where its indices begin
  const Mod::RowRange rows = of.rows(q.begin, q.end);
  const int group = width * p.kv_block; // columns
  for (int i = threadIdx.x; i * width < kv_blocks; i += kThreads) {
    const Kind kind = judge(of, rows, q, shared.groups[i], Span(i * group, group, of.kv_len));
    shared.of_group[i] = kind == kPartial && width > 1 ? kOpen : kind;
  }
  __syncthreads();
  int partial = 0, full = 0;
  for (int start = 0; start < kv_blocks; start += kThreads) {
    const int block = start + threadIdx.x;
    const Kind seen = block < kv_blocks ? shared.of_group[block / width] : kEmpty;
    shared.kind[threadIdx.x] = seen;
    if (threadIdx.x < 2) shared.open_count[threadIdx.x] = 0;
    if (!__syncthreads_or(seen != kEmpty)) continue;
    if (seen == kOpen) shared.open[0][atomicAdd(&shared.open_count[0], 1)] = threadIdx.x;
    __syncthreads();
    const auto columns_of = [&](int slot) { return Span((start + slot) * p.kv_block, p.kv_block, of.kv_len); };
    if (width > 1) { // a warp judges a block of an open group
      for (int i = warp(); i < shared.open_count[0]; i += kWarps) {
        const int slot = shared.open[0][i];
        const Span kv = columns_of(slot);
        const Kind kind = judge(of, rows, q, of.columns(kv.begin, kv.end), kv);
        if (lane() == 0) shared.kind[slot] = kind;
        if (lane() == 0 && kind == kOpen) shared.open[1][atomicAdd(&shared.open_count[1], 1)] = slot;
      }
      __syncthreads();
    }
    const int list = width > 1;
    for (int i = 0; i < shared.open_count[list]; ++i) {
      const int slot = shared.open[list][i];
      const Kind kind = read_block(of, q, columns_of(slot));
      if (threadIdx.x == 0) shared.kind[slot] = kind;
    }
    __syncthreads();
    const bool is_whole = q.size() == p.q_block && (block + 1) * p.kv_block <= of.kv_len;
    const Kind kind = shared.kind[threadIdx.x];
    append(shared, p, room, block, kind == kFull && !is_whole ? kPartial : kind, partial, full);
  }
  if (threadIdx.x == 0) {
    p.partial_count[row] = partial;
    p.full_count[row] = full;
  }
}

// NOTE: with the 1, ptxas takes the registers it needs; without it, ptxas spills some to fit one more CTA on an SM.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attnc_block_mask(const __grid_constant__ BlockMaskParams p, const __grid_constant__ ModArgs args) {
  __shared__ Shared shared;
  const int q_blocks = (p.q_len + p.q_block - 1) / p.q_block;
  const long long rows = (long long)p.batch * p.heads * q_blocks;
  // Rows of blocks behind the ends of sequences lie together, so those of a ragged batch are dealt one by one.
  constexpr bool kDealt = kIsRagged<Mod>;
  const long long first = kDealt ? blockIdx.x : rows * blockIdx.x / gridDim.x, step = kDealt ? gridDim.x : 1;
  const long long last = kDealt ? rows : rows * (blockIdx.x + 1) / gridDim.x;
  long long grouped = -1; // the number whose columns are in shared memory
  for (long long row = first; row < last; row += step) {
    const long long number = row / q_blocks;
    const int b = int(number / p.heads), h = int(number % p.heads);
    const HeadOf of = head_of<Mod>(p, args, b, h);
    const Span q(of.first + int(row % q_blocks) * p.q_block, p.q_block, of.first + of.q_len);
    if (q.size() <= 0 || of.kv_len == 0) {
      if (threadIdx.x == 0) p.partial_count[row] = p.full_count[row] = 0;
      continue;
    }
    const int kv_blocks = (of.kv_len + p.kv_block - 1) / p.kv_block;
    const int width = max(1, (kv_blocks + kMostGroups - 1) / kMostGroups);
    if (number != grouped) {
      grouped = number;
      for (int i = warp(); i * width < kv_blocks; i += kWarps) {
        const Span kv(i * width * p.kv_block, width * p.kv_block, of.kv_len);
        const Mod::ColRange range = of.columns(kv.begin, kv.end);
        if (lane() == 0) shared.groups[i] = range;
      }
      __syncthreads();
    }
    list_row(shared, of, row, q, kv_blocks, width);
  }
}

} // namespace attnc::block_mask
