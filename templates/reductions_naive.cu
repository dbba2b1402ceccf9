// Outputs that a mod declares, short and obviously right. Any sm, fp32 arithmetic. For each live score:
//
//   s = score_mod(scale q k^T),   p = exp(s - lse),   out = sum or max of value(s, p)
//
// attnc_reduce_rows: a warp owns a row of q, and writes a number for it. attnc_reduce_columns: a warp owns a position
// of k of a query head. A lane takes one of 32 elements of the other axis at a time. attnc_reduce_heads: a CTA reduces
// the rows' numbers of a head. The order of sums depends only on the lengths. The mod is generated in plain form.
//
// No shared memory but that of attnc_reduce_heads. Grid: tiles * heads * batch in one dimension. Threads: 32 kRows.
#include "attnc_config.cuh"

#include "attnc_mod.cuh"

#include "algo/pages.cuh"
#include "algo/reductions.cuh"
#include "algo/scaled.cuh"
#include "algo/sequence.cuh"
#include "algo/softmax.cuh"
#include "algo/step_walk.cuh"
#include "tile/element.cuh"

namespace attnc::naive {

constexpr int kRows = 8;                                     // of a CTA, one per warp
constexpr int kChunk = 32;                                   // one element per lane
constexpr bool kIsPacked = kIsRagged<Mod> && kPageSize == 0; // whether sequences of k lie one behind the other

using Input = typename Choose<kFp8, E4M3, Element>::Type; // of q and k
using Params = typename ParametersOf<ScaledIf<ReductionParams, kFp8>, kPageSize != 0>::Type;

/// The scores of a head of a sequence.
struct Scores {
  const Params& launch;
  const ModArgs& args;
  int b, h, q_len, kv_len;
  Mod::Head head;
  SequenceStart<Mod> start;
  const Input *q, *k;
  long long first_row; ///< of lse

  ATTNC_DEVICE Scores(const Params& launch, const ModArgs& args, int b, int h)
      : launch(launch), args(args), b(b), h(h), head(Mod::head(args, b, h)), start(launch, args, b) { // SEAM(head)
    const ForwardParams& p = params_of<Mod>(launch, args, b);
    q_len = p.q_len, kv_len = kv_length<Mod>(p, args, head);
    first_row = row_of_head<Mod>(p, b, h) + start.q();
    q = (const Input*)launch.q + b * p.q_stride.batch + h * p.q_stride.head + start.q() * p.q_stride.row;
    k = (const Input*)launch.k + (kPageSize ? 0 : b) * p.k_stride.batch + h / p.group * p.k_stride.head +
        start.kv() * p.k_stride.row;
  }

  /// Adds the score of a row of q and a position of k, if it lives. `masked`: whether mask_mod is to be asked.
  template <bool OfColumns> ATTNC_DEVICE void add(Reduced<OfColumns>& to, int q_idx, int kv_idx, bool masked) const {
    if (q_idx >= q_len || kv_idx >= kv_len) return;
    const int position = position_of<Mod>(args, head, q_idx);
    const Mod::Row row = Mod::row(args, head, b, h, position, float(position));  // SEAM(row)
    const Mod::Col col = Mod::col(args, head, b, h, kv_idx, float(kv_idx), 0.f); // SEAM(col)
    const Coord at = {b, h, position, kv_idx};
    if (masked && !Mod::mask(args, head, row, col, at)) return; // SEAM(mask)
    const Input* of_q = q + q_idx * launch.q_stride.row;
    const Input* of_k = k;
    if constexpr (kPageSize != 0)
      of_k += paged_offset<kPageSize>(pages_of(launch, b), launch.k_stride, kv_idx);
    else
      of_k += kv_idx * launch.k_stride.row;
    float product = 0.f;
    for (int d = 0; d < kHeadDimQk; ++d) product += to_float(of_q[d]) * to_float(of_k[d]);
    const float scale =
        scale_of_q(launch, b, h, q_idx, start.q() + q_idx) *
        scales_of_column<kPageSize>(launch, pages_of(launch, b), b, h / launch.group, kv_idx, start.kv() + kv_idx).k;
    const float score = Mod::score(args, head, row, col, at, product * (launch.scale * scale)); // SEAM(score)
    const float difference = score - launch.lse[first_row + q_idx];
    to.add(score != negative_infinity(), args, head, row, col, at, score, {expf(difference), difference});
  }
};

/// Returns the walk over all columns before kv_len, or those of the lists: the oracle does not trust a mod's bounds.
ATTNC_DEVICE auto walk_of(const ForwardParams& p, const Scores& scores, int q_start) {
  if constexpr (kBlockSparse) {
    const BlockLists& lists = lists_of<Mod>(p);
    return StepWalk<kChunk, StepSource::Lists, Mod::kHasMaskMod>(
        scores.kv_len, BlockRow(lists, scores.b, scores.h, q_start / lists.q_block, lists.kv_block));
  } else {
    return StepWalk<kChunk, StepSource::All, Mod::kHasMaskMod>(scores.kv_len);
  }
}

extern "C" __global__ void __launch_bounds__(32 * kRows, 1)
    attnc_reduce_rows(const __grid_constant__ Params launch, const __grid_constant__ ModArgs args) {
  const auto [b, h, q_start] = q_tile_at<Mod, kRows>(launch, args, blockIdx.x);
  const Scores scores(launch, args, b, h);
  const int q_idx = q_start + int(threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (!has_rows<Mod>(q_start, scores.q_len) || q_idx >= scores.q_len) return;
  Reduced<false> reduced;
  const auto walk = walk_of(launch, scores, q_start);
  for (int i = 0; i < walk.count; ++i) {
    const Step step = walk.at(i);
    scores.add(reduced, q_idx, step.start + lane, step.flags & kStepMasked);
  }
  reduced.template join_lanes<1, 32>();
  if (lane == 0) reduced.store(launch.out, scores.first_row + q_idx);
}

extern "C" __global__ void __launch_bounds__(32 * kRows, 1)
    attnc_reduce_columns(const __grid_constant__ Params launch, const __grid_constant__ ModArgs args) {
  const int tiles = kIsPacked ? kv_tiles_of<Mod, kRows>(launch) : (launch.kv_len + kRows - 1) / kRows;
  const int head = blockIdx.x / tiles, slot = blockIdx.x % tiles;
  RowTile tile{head / launch.q_heads, slot * kRows};
  if constexpr (kIsPacked) tile = kv_tile_in_slot<Mod, kRows>(args, slot, launch.batch);
  const Scores scores(launch, args, tile.b, head % launch.q_heads);
  const int lane = threadIdx.x % 32, kv_idx = tile.start + int(threadIdx.x) / 32;
  if (kIsPacked ? unsigned(kv_idx) >= unsigned(scores.kv_len) : kv_idx >= launch.kv_len) return;
  Reduced<true> reduced;
  for (int q_start = 0; q_start < scores.q_len; q_start += kChunk) {
    const Listed listed = listed_at(launch, scores.b, scores.h, q_start, kv_idx);
    if (listed != Listed::Empty) scores.add(reduced, q_start + lane, kv_idx, listed == Listed::Partial);
  }
  reduced.template join_lanes<1, 32>();
  if (lane != 0) return;
  if constexpr (kIsPacked)
    reduced.store(launch.out, (long long)scores.h * launch.rows.kv + scores.start.kv() + kv_idx);
  else
    reduced.store(launch.out, ((long long)tile.b * launch.q_heads + scores.h) * launch.kv_len + kv_idx);
}

extern "C" __global__ void __launch_bounds__(32 * kRows, 1)
    attnc_reduce_heads(const __grid_constant__ Params launch, const __grid_constant__ ModArgs args) {
  __shared__ float of_warps[kRows];
  const int b = blockIdx.x / launch.q_heads, h = blockIdx.x % launch.q_heads;
  const Scores scores(launch, args, b, h);
  Reduced<false>::each([&](auto r) {
    using R = decltype(r);
    if (!launch.out[r.kIndex]) return;
    const auto join = [](float x, float y) { return Reduced<false>::joined<R>(x, y); };
    const float* of_rows = launch.parts[r.kIndex] + scores.first_row;
    float x = Reduced<false>::none<R>();
    for (int i = threadIdx.x; i < scores.q_len; i += 32 * kRows) x = join(x, of_rows[i]);
    for (int distance = 16; distance; distance /= 2) x = join(x, __shfl_xor_sync(0xffffffffu, x, distance));
    __syncthreads(); // those of the reduction before are read
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int warp = 1; warp < kRows; ++warp) x = join(x, of_warps[warp]);
    launch.out[r.kIndex][blockIdx.x] = x;
  });
}

} // namespace attnc::naive
