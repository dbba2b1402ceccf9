#include "attnc/c/block_mask.h"

#include "c/enumerators.h"
#include "c/handles.h"
#include "c/operands.h"
#include "c/tell.h"
#include "launch/mask_shape.h"
#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace attnc::c {
namespace {

BlockMask::Lists readWithColumns(int32_t withColumns) {
  return readFlag(withColumns, "with_columns") ? BlockMask::Lists::ByRowAndColumn : BlockMask::Lists::ByRow;
}

/// Copies `lists` lists of one kind, whose indices may be compacted, into dense ones of `longest` indices.
void copyLists(int64_t lists, const int32_t* counts, const int32_t* indices, int64_t stride, int32_t* toCounts,
               int32_t* toIndices, int64_t longest) {
  for (int64_t list = 0; list < lists; ++list) {
    toCounts[list] = counts[list];
    std::copy_n(indices + list * stride, counts[list], toIndices + list * longest);
  }
}

} // namespace
} // namespace attnc::c

using namespace attnc;
using namespace attnc::c;

attnc_status attnc_block_mask_build(const attnc_mod* mod, const attnc_capture* captures, size_t capture_count,
                                    const attnc_problem* problem, const attnc_block_mask_shape* shape,
                                    attnc_block_mask** mask) {
  const std::initializer_list<Needed> needed = {{mod, "mod"}, {problem, "problem"}, {shape, "shape"}, {mask, "mask"}};
  return call(needed, [&] {
    Captures values;
    readCaptures(captures, capture_count, "captures", values);
    return give(BlockMask::build(mod->mod, values, readProblem(*problem), readShape(*shape)), mask);
  });
}

attnc_status attnc_block_mask_from_lists(const attnc_block_mask_view* lists, attnc_block_mask** mask) {
  return call({{lists, "lists"}, {mask, "mask"}}, [&] {
    const std::optional<BlockMaskView> view = readLists(lists, "lists");
    return give(BlockMask::fromLists(*view), mask);
  });
}

attnc_status attnc_block_mask_with_columns(const attnc_block_mask* mask, attnc_block_mask** copy) {
  return call({{mask, "mask"}, {copy, "copy"}},
              [&] { return give(Expected<BlockMask>(mask->mask.withColumns()), copy); });
}

void attnc_block_mask_destroy(attnc_block_mask* mask) { delete mask; }

attnc_status attnc_block_mask_get_view(const attnc_block_mask* mask, attnc_block_mask_view* view) {
  return tell({{mask, "mask"}}, view, "view", [&](attnc_block_mask_view& all) { all = toC(mask->mask.view()); });
}

attnc_status attnc_block_mask_get_info(const attnc_block_mask* mask, attnc_block_mask_info* info) {
  return tell({{mask, "mask"}}, info, "info", [&](attnc_block_mask_info& all) {
    all.live_blocks = mask->mask.liveBlocks();
    all.full_blocks = mask->mask.fullBlocks();
    all.sparsity = mask->mask.sparsity();
  });
}

attnc_status attnc_block_mask_text(const attnc_block_mask* mask, int64_t batch, int64_t head, int64_t limit,
                                   char* buffer, size_t capacity, size_t* length) {
  return call({{mask, "mask"}, {length, "length"}}, [&]() -> Status {
    if (capacity) need(buffer, "buffer");
    const std::string text = mask->mask.toString(batch, head, limit);
    *length = text.size();
    if (!capacity) return {};
    const size_t copied = std::min(text.size(), capacity - 1);
    std::memcpy(buffer, text.data(), copied);
    buffer[copied] = 0;
    return {};
  });
}

attnc_status attnc_block_mask_storage_bytes(const attnc_block_mask_shape* shape, int32_t with_columns, size_t* bytes) {
  return call({{shape, "shape"}, {bytes, "bytes"}}, [&]() -> Status {
    const BlockMask::Lists lists = readWithColumns(with_columns);
    const BlockMaskShape extents = readShape(*shape);
    ATTNC_TRY(plan::checkShape(extents));
    *bytes = BlockMask::storageBytes(extents, lists);
    return {};
  });
}

attnc_status attnc_block_mask_view_into(void* storage, const attnc_block_mask_shape* shape, int32_t with_columns,
                                        attnc_block_mask_view* view) {
  return call({{storage, "storage"}, {shape, "shape"}}, [&]() -> Status {
    const BlockMask::Lists lists = readWithColumns(with_columns);
    const BlockMaskShape extents = readShape(*shape);
    ATTNC_TRY(plan::checkShape(extents));
    writeStruct(toC(BlockMask::viewInto(storage, extents, lists)), view, "view");
    return {};
  });
}

attnc_status attnc_block_mask_write(const attnc_block_mask* mask, int32_t with_columns, void* storage, size_t bytes) {
  return call({{mask, "mask"}, {storage, "storage"}}, [&]() -> Status {
    const BlockMask::Lists lists = readWithColumns(with_columns);
    const BlockMaskView from = mask->mask.view();
    const BlockMaskShape& shape = from.shape;
    const size_t needed = BlockMask::storageBytes(shape, lists);
    if (bytes < needed) return Error::environment(fmt::format("storage has {} bytes, expected {}", bytes, needed));
    const bool byColumn = lists == BlockMask::Lists::ByRowAndColumn;
    if (byColumn && !from.columns.partialCount)
      return Error::environment("the block mask has no lists by column",
                                "attnc_block_mask_with_columns() makes one that has");
    std::memset(storage, 0, needed);
    const BlockMaskView to = BlockMask::viewInto(storage, shape, lists);
    const int64_t masks = shape.batch * shape.heads, rows = masks * shape.qBlocks(), columns = masks * shape.kvBlocks();
    copyLists(rows, from.partialCount, from.partialIndex, from.indexStride, to.partialCount, to.partialIndex,
              to.indexStride);
    copyLists(rows, from.fullCount, from.fullIndex, from.indexStride, to.fullCount, to.fullIndex, to.indexStride);
    if (!byColumn) return {};
    const BlockMaskColumns &source = from.columns, &target = to.columns;
    copyLists(columns, source.partialCount, source.partialIndex, source.indexStride, target.partialCount,
              target.partialIndex, target.indexStride);
    copyLists(columns, source.fullCount, source.fullIndex, source.indexStride, target.fullCount, target.fullIndex,
              target.indexStride);
    return {};
  });
}
