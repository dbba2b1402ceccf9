#include "reference/listed_columns.h"

#include <algorithm>

namespace attnc::reference {

void listColumns(const BlockMaskView* mask, const ProblemShape& problem, int64_t b, int64_t h, int64_t q,
                 std::vector<ColumnRange>& ranges) {
  ranges.clear();
  if (!mask) {
    ranges.push_back({0, problem.kvLen, /*full=*/false});
    return;
  }
  const BlockMaskShape& shape = mask->shape;
  const int64_t block = shape.boxes ? shape.boxes->queries.boxOf(q) : q / shape.qBlock;
  const int64_t line =
      ((shape.batch == 1 ? 0 : b) * shape.heads + (shape.heads == 1 ? 0 : h)) * shape.qBlocks() + block;
  const auto add = [&](const int32_t* counts, const int32_t* indices, bool full) {
    for (int32_t i = 0; counts && i < counts[line]; ++i) {
      const int64_t listed = indices[line * mask->indexStride + i], begin = listed * shape.kvBlock;
      if (!shape.boxes) {
        ranges.push_back({begin, std::min(begin + shape.kvBlock, problem.kvLen), full});
        continue;
      }
      for (int64_t token : shape.boxes->keys.tokensIn(listed)) ranges.push_back({token, token + 1, full});
    }
  };
  add(mask->partialCount, mask->partialIndex, false);
  add(mask->fullCount, mask->fullIndex, true);
  std::sort(ranges.begin(), ranges.end(), [](const ColumnRange& x, const ColumnRange& y) { return x.begin < y.begin; });
}

void listLiveColumns(const BlockMaskView* mask, const ProblemShape& problem, const ir::Interpreter& interpreter,
                     const QueryRow& row, int64_t position, int64_t kvLength, std::vector<int64_t>& live) {
  std::vector<ColumnRange> ranges;
  listColumns(mask, problem, row.b, row.h, row.q, ranges);
  live.clear();
  for (const ColumnRange& range : ranges)
    for (int64_t kv = range.begin; kv < std::min(range.end, kvLength); ++kv)
      if (range.full || interpreter.mask(row.b, row.h, position, kv)) live.push_back(kv);
}

} // namespace attnc::reference
