#include "api/block_mask_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace attnc {

BlockMask BlockMask::withColumns() const {
  BlockMask mask = *this;
  if (!mask.columns) mask.columns = transposed();
  return mask;
}

BlockMask::Owned BlockMask::transposed() const {
  const int64_t qBlocks = extents.qBlocks(), kvBlocks = extents.kvBlocks();
  const int64_t masks = extents.batch * extents.heads;
  // Calls visit(column, q block) for all blocks of one kind; columns count over [batch, heads, kvBlocks].
  const auto forEach = [&](const std::vector<int32_t>& counts, const std::vector<int32_t>& indices, auto visit) {
    for (int64_t row = 0; row < masks * qBlocks; ++row)
      for (int64_t i = 0; i < counts[size_t(row)]; ++i)
        visit(size_t(row / qBlocks * kvBlocks + indices[size_t(row * rows.indexStride + i)]), int32_t(row % qBlocks));
  };
  Owned by{.indexStride = 1};
  const auto count = [&](const std::vector<int32_t>& counts, const std::vector<int32_t>& indices) {
    std::vector<int32_t> of(size_t(masks * kvBlocks), 0);
    forEach(counts, indices, [&](size_t column, int32_t) { ++of[column]; });
    for (int32_t length : of) by.indexStride = std::max<int64_t>(by.indexStride, length);
    return of;
  };
  // Rows come in increasing order, so a column's entries do as well.
  const auto fill = [&](const std::vector<int32_t>& counts, const std::vector<int32_t>& indices) {
    std::vector<int32_t> of(size_t(masks * kvBlocks * by.indexStride), 0), filled(size_t(masks * kvBlocks), 0);
    forEach(counts, indices, [&](size_t column, int32_t qBlock) {
      of[column * size_t(by.indexStride) + size_t(filled[column]++)] = qBlock;
    });
    return of;
  };
  by.partialCount = count(rows.partialCount, rows.partialIndex);
  by.fullCount = count(rows.fullCount, rows.fullIndex);
  by.partialIndex = fill(rows.partialCount, rows.partialIndex);
  by.fullIndex = fill(rows.fullCount, rows.fullIndex);
  return by;
}

Status checkSameBlocks(const BlockMaskView& lists, const BlockMaskColumns& expected) {
  const BlockMaskShape& shape = lists.shape;
  const BlockMaskColumns& given = lists.columns;
  const int64_t kvBlocks = shape.kvBlocks();
  const auto same = [&](int64_t column, const int32_t* counts, const int32_t* indices, const int32_t* expectedCounts,
                        const int32_t* expectedIndices) {
    const int64_t count = counts ? counts[column] : 0;
    if (count != expectedCounts[column] || count > given.indexStride) return false;
    if (count == 0) return true;
    std::vector<int32_t> blocks(indices + column * given.indexStride, indices + column * given.indexStride + count);
    std::sort(blocks.begin(), blocks.end());
    return std::equal(blocks.begin(), blocks.end(), expectedIndices + column * expected.indexStride);
  };
  for (int64_t column = 0; column < shape.batch * shape.heads * kvBlocks; ++column) {
    const int64_t head = column / kvBlocks;
    const auto refuse = [&](const char* kind) {
      return Error::environment(
          fmt::format("block mask: columns.{}Index lists other blocks than the rows at batch {}, head {}, kv block {}",
                      kind, head / shape.heads, head % shape.heads, column % kvBlocks));
    };
    if (!same(column, given.partialCount, given.partialIndex, expected.partialCount, expected.partialIndex))
      return refuse("partial");
    if (!same(column, given.fullCount, given.fullIndex, expected.fullCount, expected.fullIndex)) return refuse("full");
  }
  return {};
}

} // namespace attnc
