// The lists of a block mask: checking, copying, cutting, showing. block_mask_build.cpp builds them from a mod;
// block_mask_columns.cpp makes lists by column.
#include "attnc/block_mask.h"

#include "api/block_mask_columns.h"
#include "launch/mask_shape.h"
#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace attnc {
namespace {

int64_t rowCount(const BlockMaskShape& shape) { return shape.batch * shape.heads * shape.qBlocks(); }

/// Checks one row's list of one kind: its count and indices are in range, and no block is listed twice.
class RowCheck {
public:
  RowCheck(const BlockMaskView& lists) : lists(lists), seenIn(size_t(lists.shape.kvBlocks()), -1) {}

  Status check(int64_t row, const char* kind, const int32_t* counts, const int32_t* indices) {
    int64_t count = counts[row];
    int64_t most = std::min(lists.indexStride, lists.shape.kvBlocks());
    if (count < 0 || count > most)
      return Error::environment(
          fmt::format("block mask: {}Count is {} at {}, must be 0 .. {}", kind, count, place(row), most));
    for (int64_t i = 0; i < count; ++i) {
      int64_t block = indices[row * lists.indexStride + i];
      if (block < 0 || block >= lists.shape.kvBlocks())
        return Error::environment(fmt::format("block mask: {}Index names block {} at {}, there are {}", kind, block,
                                              place(row), lists.shape.kvBlocks()));
      if (seenIn[size_t(block)] == row)
        return Error::environment(fmt::format("block mask: block {} is listed twice at {}", block, place(row)));
      seenIn[size_t(block)] = row;
    }
    return {};
  }

private:
  std::string place(int64_t row) const {
    int64_t qBlocks = lists.shape.qBlocks(), head = row / qBlocks;
    return fmt::format("batch {}, head {}, q block {}", head / lists.shape.heads, head % lists.shape.heads,
                       row % qBlocks);
  }

  const BlockMaskView& lists;
  std::vector<int64_t> seenIn; // row in which a block was last listed
};

int64_t sum(const std::vector<int32_t>& counts) { return std::accumulate(counts.begin(), counts.end(), int64_t(0)); }

/// The lists along one axis within an allocation, in elements.
struct Layout {
  size_t counts, indices; // of one kind
  Layout(const BlockMaskShape& shape, int64_t lists, int64_t longest)
      : counts(size_t(shape.batch * shape.heads * lists)), indices(counts * size_t(longest)) {}
  size_t elements() const { return 2 * (counts + indices); }

  static Layout byRow(const BlockMaskShape& shape) { return {shape, shape.qBlocks(), shape.kvBlocks()}; }
  static Layout byColumn(const BlockMaskShape& shape) { return {shape, shape.kvBlocks(), shape.qBlocks()}; }
};

} // namespace

BlockMaskShape smallestMask(const Mod& mod, const ProblemShape& problem, int qBlock, int kvBlock) {
  return plan::smallestMask(mod.module(), problem, qBlock, kvBlock);
}

Expected<BlockMask> BlockMask::fromLists(const BlockMaskView& lists) {
  ATTNC_TRY(plan::checkShape(lists.shape));
  ATTNC_TRY(plan::checkLists(lists));
  int64_t rows = rowCount(lists.shape);
  bool hasFull = lists.fullCount != nullptr;
  RowCheck check(lists);
  for (int64_t row = 0; row < rows; ++row) {
    ATTNC_TRY(check.check(row, "partial", lists.partialCount, lists.partialIndex));
    if (!hasFull) continue;
    ATTNC_TRY(check.check(row, "full", lists.fullCount, lists.fullIndex));
  }

  BlockMask mask;
  mask.extents = lists.shape;
  mask.ofWholeMod = lists.ofWholeMod;
  size_t indices = size_t(rows * lists.indexStride);
  mask.rows.indexStride = lists.indexStride;
  mask.rows.partialCount.assign(lists.partialCount, lists.partialCount + rows);
  mask.rows.partialIndex.assign(lists.partialIndex, lists.partialIndex + indices);
  mask.rows.fullCount.assign(size_t(rows), 0);
  mask.rows.fullIndex.assign(indices, 0);
  if (hasFull) {
    std::copy_n(lists.fullCount, rows, mask.rows.fullCount.begin());
    std::copy_n(lists.fullIndex, indices, mask.rows.fullIndex.begin());
  }
  if (!lists.columns.partialCount) return mask;
  ATTNC_TRY(plan::checkColumns(lists));
  mask.columns = mask.transposed();
  ATTNC_TRY(checkSameBlocks(lists, mask.view().columns));
  return mask;
}

BlockMaskView BlockMask::view() const {
  // A view has one type for reading and writing; readers of a const mask do not write.
  auto address = [](const std::vector<int32_t>& list) { return const_cast<int32_t*>(list.data()); };
  BlockMaskView view{extents,
                     address(rows.partialCount),
                     address(rows.partialIndex),
                     address(rows.fullCount),
                     address(rows.fullIndex),
                     rows.indexStride};
  view.ofWholeMod = ofWholeMod;
  if (columns)
    view.columns = {address(columns->partialCount), address(columns->partialIndex), address(columns->fullCount),
                    address(columns->fullIndex), columns->indexStride};
  return view;
}

double BlockMask::sparsity() const {
  double blocks = double(rowCount(extents)) * double(extents.kvBlocks());
  return blocks == 0 ? 0 : 100 * (1 - double(liveBlocks()) / blocks);
}

int64_t BlockMask::liveBlocks() const { return sum(rows.partialCount) + fullBlocks(); }
int64_t BlockMask::fullBlocks() const { return sum(rows.fullCount); }

std::string BlockMask::toString(int64_t batch, int64_t head, int64_t limit) const {
  if (batch < 0 || batch >= extents.batch || head < 0 || head >= extents.heads || limit <= 0) return {};
  constexpr const char* kGlyphs[] = {" ", "░", "█"}; // empty, partial, full
  int64_t qBlocks = extents.qBlocks(), columns = std::min(extents.kvBlocks(), limit);
  std::string picture;
  for (int64_t qBlock = 0; qBlock < std::min(qBlocks, limit); ++qBlock) {
    int64_t row = (batch * extents.heads + head) * qBlocks + qBlock;
    std::vector<int> kind(size_t(extents.kvBlocks()), 0);
    for (int32_t i = 0; i < rows.partialCount[row]; ++i)
      kind[size_t(rows.partialIndex[row * rows.indexStride + i])] = 1;
    for (int32_t i = 0; i < rows.fullCount[row]; ++i) kind[size_t(rows.fullIndex[row * rows.indexStride + i])] = 2;
    for (int64_t column = 0; column < columns; ++column) picture += kGlyphs[kind[size_t(column)]];
    picture += '\n';
  }
  return picture;
}

size_t BlockMask::storageBytes(const BlockMaskShape& shape, Lists lists) {
  size_t elements = Layout::byRow(shape).elements();
  if (lists == Lists::ByRowAndColumn) elements += Layout::byColumn(shape).elements();
  return elements * sizeof(int32_t);
}

BlockMaskView BlockMask::viewInto(void* storage, const BlockMaskShape& shape, Lists lists) {
  Layout byRow = Layout::byRow(shape), byColumn = Layout::byColumn(shape);
  auto* counts = static_cast<int32_t*>(storage);
  int32_t* indices = counts + 2 * byRow.counts;
  BlockMaskView view{shape, counts, indices, counts + byRow.counts, indices + byRow.indices, shape.kvBlocks()};
  if (lists == Lists::ByRow) return view;
  counts += byRow.elements();
  indices = counts + 2 * byColumn.counts;
  view.columns = {counts, indices, counts + byColumn.counts, indices + byColumn.indices, shape.qBlocks()};
  return view;
}

} // namespace attnc
