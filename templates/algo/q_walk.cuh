// The steps along Q of a tile of KV columns: all of them, those whose rows have live columns there, or those of lists.
//
// A mod's bounds map rows to columns. As q_idx grows, each edge moves in one direction only. So the rows that see a
// range of columns are an interval, which bisection finds: four searches of log2(q_len) rows per tile.
#pragma once

#include "attnc_mod.cuh"

#include "algo/sequence.cuh"
#include "algo/step_walk.cuh"

namespace attnc {

struct RowInterval {
  int begin, end;
};

/// Returns the rows of [0, q_len) for which `holds` is true. As q_idx grows, it changes once: to true if `rises`, else
/// to false.
template <class Predicate> ATTNC_DEVICE RowInterval rows_where(int q_len, bool rises, Predicate holds) {
  int low = 0, high = q_len; // the change lies in [low, high]
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (holds(middle) == rises)
      high = middle;
    else
      low = middle + 1;
  }
  return rises ? RowInterval{low, q_len} : RowInterval{0, low};
}

/// Returns the rows with live columns among [kv_begin, kv_end), and the rows in which all of these live.
template <class M, class Args>
ATTNC_DEVICE TileBounds q_bounds(const Args& args, const typename M::Head& head, int b, int h, int kv_begin, int kv_end,
                                 int q_len) {
  const auto of = [&](int q_idx) {
    if constexpr (kHasOffsets<M>) q_idx += q_offset<M>(args, head);
    return M::bounds(args, head, b, h, q_idx, q_idx + 1); // SEAM(bounds)
  };
  const RowInterval reached = rows_where(q_len, !M::kEndFalls, [&](int q_idx) { return of(q_idx).end > kv_begin; });
  const RowInterval begun = rows_where(q_len, M::kBeginFalls, [&](int q_idx) { return of(q_idx).begin < kv_end; });
  const RowInterval passed = rows_where(q_len, !M::kEndFalls, [&](int q_idx) { return of(q_idx).end >= kv_end; });
  const RowInterval open = rows_where(q_len, M::kBeginFalls, [&](int q_idx) { return of(q_idx).begin <= kv_begin; });
  return {max(reached.begin, begun.begin), max(passed.begin, open.begin), min(passed.end, open.end),
          min(reached.end, begun.end)};
}

template <class M, bool Lists>
constexpr StepSource kQSource = Lists           ? StepSource::Lists
                                : M::kHasBounds ? StepSource::Bounds
                                                : StepSource::All;

template <class M, int Size, bool Lists> using QWalk = StepWalk<Size, kQSource<M, Lists>, M::kHasMaskMod>;

/// Returns the walk of columns [kv_begin, kv_end) of query head h, which lie in one block of the lists.
template <class M, int Size, bool Lists, class Args>
ATTNC_DEVICE QWalk<M, Size, Lists> walk_q(const BackwardParams& p, const Args& args, int b, int h, int kv_begin,
                                          int kv_end) {
  using Walk = QWalk<M, Size, Lists>;
  const int q_len = p.forward.q_len;
  if constexpr (Lists) {
    return Walk(q_len, BlockRow(p.columns, b, h, kv_begin / p.columns.kv_block, p.columns.q_block));
  } else if constexpr (M::kHasBounds) {
    const auto head = M::head(args, b, h); // SEAM(head)
    return Walk(q_len, q_bounds<M>(args, head, b, h, kv_begin, kv_end, q_len));
  } else {
    return Walk(q_len);
  }
}

} // namespace attnc
