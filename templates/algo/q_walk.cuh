// The steps along Q of a tile of KV columns: all of them, those whose rows have live columns there, or those of lists.
//
// A mod's bounds map rows to columns. As q_idx grows, each edge moves in one direction only. So the rows that see a
// range of columns are an interval between two of four rows: where an edge passes the first column, and the last one.
// A warp searches all four at once, eight lanes each: five rounds at 8192 rows, where bisection takes four times 14.
#pragma once

#include "attnc_mod.cuh"

#include "algo/sequence.cuh"
#include "algo/step_walk.cuh"

namespace attnc {

/// Returns the rows with live columns among [kv_begin, kv_end), and the rows in which all of these live. Called by a
/// whole warp; all lanes get the same.
template <class M, class Args>
ATTNC_DEVICE TileBounds q_bounds(const Args& args, const typename M::Head& head, int b, int h, int kv_begin, int kv_end,
                                 int q_len) {
  // Lanes 0 to 7 search the first row at which the end edge has passed kv_begin, lanes 8 to 15 kv_end - 1; the other
  // lanes do so for the begin edge.
  constexpr int kLanes = 8;
  const int lane = threadIdx.x % 32, of_edge = lane % kLanes;
  const bool is_begin = lane & 2 * kLanes, falls = is_begin ? M::kBeginFalls : M::kEndFalls;
  const int column = lane & kLanes ? kv_end - 1 : kv_begin;
  int row = 0; // rows before it have not passed; the edge passes within kLanes * step rows from it on, or never
#pragma unroll 1
  for (int range = q_len + 1; range > 1;) { // how many rows may be the one, q_len among them
    range = (range + kLanes) / (kLanes + 1);
    const int tested = row + (of_edge + 1) * range - 1;
    int q_idx = min(tested, q_len - 1);
    if constexpr (kHasOffsets<M>) q_idx += q_offset<M>(args, head);
    const TileBounds of = M::bounds(args, head, b, h, q_idx, q_idx + 1); // SEAM(bounds)
    const bool before = tested < q_len && ((is_begin ? of.begin : of.end) > column) == falls;
    row += __popc(__ballot_sync(0xffffffffu, before) >> (lane - of_edge) & ((1 << kLanes) - 1)) * range;
  }
  const int reached = __shfl_sync(0xffffffffu, row, 0), passed = __shfl_sync(0xffffffffu, row, kLanes);
  const int open = __shfl_sync(0xffffffffu, row, 2 * kLanes), begun = __shfl_sync(0xffffffffu, row, 3 * kLanes);
  return {max(M::kEndFalls ? 0 : reached, M::kBeginFalls ? begun : 0),
          max(M::kEndFalls ? 0 : passed, M::kBeginFalls ? open : 0),
          min(M::kEndFalls ? passed : q_len, M::kBeginFalls ? q_len : open),
          min(M::kEndFalls ? reached : q_len, M::kBeginFalls ? q_len : begun)};
}

template <class M, bool Lists>
constexpr StepSource kQSource = Lists           ? StepSource::Lists
                                : M::kHasBounds ? StepSource::Bounds
                                                : StepSource::All;

template <class M, int Size, bool Lists> using QWalk = StepWalk<Size, kQSource<M, Lists>, M::kHasMaskMod>;

/// Returns the walk of columns [kv_begin, kv_end) of query head h, which lie in one block of the lists. Called by a
/// whole warp; all lanes get the same.
template <class M, int Size, bool Lists, class Args>
ATTNC_DEVICE QWalk<M, Size, Lists> walk_q(const BackwardParams& p, const Args& args, int b, int h, int kv_begin,
                                          int kv_end) {
  using Walk = QWalk<M, Size, Lists>;
  const int q_len = p.forward.q_len;
  if constexpr (Lists) {
    if (kIsRagged<M> && q_len == 0) return Walk::none(q_len); // lists may be those of other sequences
    return Walk(q_len, BlockRow(p.columns, b, h, kv_begin / p.columns.kv_block, p.columns.q_block));
  } else if constexpr (M::kHasBounds) {
    const auto head = M::head(args, b, h); // SEAM(head)
    return Walk(q_len, q_bounds<M>(args, head, b, h, kv_begin, kv_end, q_len));
  } else {
    return Walk(q_len);
  }
}

} // namespace attnc
