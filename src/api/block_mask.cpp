// The lists of a block mask: checking, copying, cutting, showing. Building them from a mod: block_mask_build.cpp.
#include "attnc/block_mask.h"

#include "plan/mask_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace attnc {
namespace {

int64_t rowCount(const BlockMaskShape& shape) { return shape.batch * shape.heads * shape.qBlocks(); }

/// One row's list of one kind: its count in range, its indices in range and none seen before.
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

/// The lists' arrays within one allocation, in elements.
struct Layout {
  size_t counts, indices; // of one kind
  explicit Layout(const BlockMaskShape& shape)
      : counts(size_t(rowCount(shape))), indices(counts * size_t(shape.kvBlocks())) {}
};

} // namespace

Expected<BlockMask> BlockMask::fromLists(const BlockMaskView& lists) {
  if (auto status = plan::checkShape(lists.shape); !status) return status.error();
  if (auto status = plan::checkLists(lists); !status) return status.error();
  int64_t rows = rowCount(lists.shape);
  bool hasFull = lists.fullCount != nullptr;
  RowCheck check(lists);
  for (int64_t row = 0; row < rows; ++row) {
    if (auto status = check.check(row, "partial", lists.partialCount, lists.partialIndex); !status)
      return status.error();
    if (!hasFull) continue;
    if (auto status = check.check(row, "full", lists.fullCount, lists.fullIndex); !status) return status.error();
  }

  BlockMask mask;
  mask.extents = lists.shape;
  mask.indexStride = lists.indexStride;
  size_t indices = size_t(rows * lists.indexStride);
  mask.partialCount.assign(lists.partialCount, lists.partialCount + rows);
  mask.partialIndex.assign(lists.partialIndex, lists.partialIndex + indices);
  mask.fullCount.assign(size_t(rows), 0);
  mask.fullIndex.assign(indices, 0);
  if (hasFull) {
    std::copy_n(lists.fullCount, rows, mask.fullCount.begin());
    std::copy_n(lists.fullIndex, indices, mask.fullIndex.begin());
  }
  return mask;
}

BlockMaskView BlockMask::view() const {
  // A view has one type for reading and writing; readers of a const mask do not write.
  auto address = [](const std::vector<int32_t>& list) { return const_cast<int32_t*>(list.data()); };
  return {extents, address(partialCount), address(partialIndex), address(fullCount), address(fullIndex), indexStride};
}

double BlockMask::sparsity() const {
  double blocks = double(rowCount(extents)) * double(extents.kvBlocks());
  return blocks == 0 ? 0 : 100 * (1 - double(liveBlocks()) / blocks);
}

int64_t BlockMask::liveBlocks() const { return sum(partialCount) + fullBlocks(); }
int64_t BlockMask::fullBlocks() const { return sum(fullCount); }

Expected<BlockMask> BlockMask::slice(int64_t batchBegin, int64_t batchEnd, int64_t headBegin, int64_t headEnd,
                                     int64_t qBlockBegin, int64_t qBlockEnd) const {
  auto inside = [](int64_t begin, int64_t end, int64_t extent) { return 0 <= begin && begin < end && end <= extent; };
  if (!inside(batchBegin, batchEnd, extents.batch) || !inside(headBegin, headEnd, extents.heads) ||
      !inside(qBlockBegin, qBlockEnd, extents.qBlocks()))
    return Error::environment(fmt::format(
        "block mask: slice [{}, {}) x [{}, {}) x [{}, {}) is empty or outside [{}, {}, {}]", batchBegin, batchEnd,
        headBegin, headEnd, qBlockBegin, qBlockEnd, extents.batch, extents.heads, extents.qBlocks()));

  BlockMask part;
  part.extents = extents;
  part.extents.batch = batchEnd - batchBegin;
  part.extents.heads = headEnd - headBegin;
  part.extents.qLen = std::min(extents.qLen, qBlockEnd * extents.qBlock) - qBlockBegin * extents.qBlock;
  part.indexStride = indexStride;
  auto append = [&](std::vector<int32_t>& to, const std::vector<int32_t>& from, int64_t begin, int64_t end,
                    int64_t elements) {
    to.insert(to.end(), from.begin() + begin * elements, from.begin() + end * elements);
  };
  for (int64_t batch = batchBegin; batch < batchEnd; ++batch) {
    for (int64_t head = headBegin; head < headEnd; ++head) {
      int64_t first = (batch * extents.heads + head) * extents.qBlocks();
      int64_t begin = first + qBlockBegin, end = first + qBlockEnd;
      append(part.partialCount, partialCount, begin, end, 1);
      append(part.fullCount, fullCount, begin, end, 1);
      append(part.partialIndex, partialIndex, begin, end, indexStride);
      append(part.fullIndex, fullIndex, begin, end, indexStride);
    }
  }
  return part;
}

std::string BlockMask::toString(int64_t batch, int64_t head, int64_t limit) const {
  if (batch < 0 || batch >= extents.batch || head < 0 || head >= extents.heads || limit <= 0) return {};
  constexpr const char* kGlyphs[] = {" ", "░", "█"}; // empty, partial, full
  int64_t qBlocks = extents.qBlocks(), columns = std::min(extents.kvBlocks(), limit);
  std::string picture;
  for (int64_t qBlock = 0; qBlock < std::min(qBlocks, limit); ++qBlock) {
    int64_t row = (batch * extents.heads + head) * qBlocks + qBlock;
    std::vector<int> kind(size_t(extents.kvBlocks()), 0);
    for (int32_t i = 0; i < partialCount[row]; ++i) kind[size_t(partialIndex[row * indexStride + i])] = 1;
    for (int32_t i = 0; i < fullCount[row]; ++i) kind[size_t(fullIndex[row * indexStride + i])] = 2;
    for (int64_t column = 0; column < columns; ++column) picture += kGlyphs[kind[size_t(column)]];
    picture += '\n';
  }
  return picture;
}

size_t BlockMask::storageBytes(const BlockMaskShape& shape) {
  Layout layout(shape);
  return 2 * (layout.counts + layout.indices) * sizeof(int32_t);
}

BlockMaskView BlockMask::viewInto(void* storage, const BlockMaskShape& shape) {
  Layout layout(shape);
  auto* counts = static_cast<int32_t*>(storage);
  int32_t* indices = counts + 2 * layout.counts;
  return {shape, counts, indices, counts + layout.counts, indices + layout.indices, shape.kvBlocks()};
}

} // namespace attnc
