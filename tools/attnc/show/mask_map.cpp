#include "show/mask_map.h"

#include "support/ceil_div.h"

#include <algorithm>

namespace attnc::cli {
namespace {

/// Returns the blocks of a row of blocks, one cell each.
std::vector<Cell> blockRow(const BlockRuns& mask, int64_t b, int64_t h, int64_t qBlock) {
  std::vector<Cell> row(size_t(mask.shape().kvBlocks()), Cell::Empty);
  for (const BlockRun& run : mask.row(b, h, qBlock))
    std::fill(row.begin() + run.begin, row.begin() + run.end, run.isFull ? Cell::Full : Cell::Partial);
  return row;
}

/// Adds the blocks [first, last) of a row of blocks.
void addRow(BlockCounts& counts, const BlockRuns::Row& row, int64_t first, int64_t last) {
  counts.all += last - first;
  for (const BlockRun& run : row) {
    const int64_t blocks = std::min<int64_t>(run.end, last) - std::max<int64_t>(run.begin, first);
    if (blocks <= 0) continue;
    counts.live += blocks;
    if (run.isFull) counts.full += blocks;
  }
}

/// Returns the cell of several blocks.
Cell cellOf(const BlockCounts& blocks) {
  if (blocks.full == 0) return blocks.live == 0 ? Cell::Empty : Cell::Partial;
  return blocks.full == blocks.all ? Cell::Full : 2 * blocks.full >= blocks.all ? Cell::Most : Cell::Some;
}

/// Classifies the elements of a cell, which lie in one partial block.
Cell judgeCell(const MaskReader& reader, int64_t b, int64_t h, const MaskRegion& cell) {
  bool someLive = false, someMasked = false;
  for (int64_t q = cell.qBegin; q < cell.qEnd; ++q)
    for (int64_t kv = cell.kvBegin; kv < cell.kvEnd; ++kv) (reader.isLive(b, h, q, kv) ? someLive : someMasked) = true;
  if (someLive && someMasked) return Cell::Partial;
  return someLive ? Cell::Live : Cell::Masked;
}

/// `step` is a power of two, so that a cell lies in one block.
CellMap elementsOf(const BlockRuns& mask, const MaskReader& reader, int64_t b, int64_t h, const MaskRegion& region,
                   int64_t step) {
  const BlockMaskShape& shape = mask.shape();
  CellMap map;
  map.qStep = map.kvStep = step;
  map.ofElements = true;
  map.region = {region.qBegin / step * step, region.qEnd, region.kvBegin / step * step, region.kvEnd};
  map.rows = ceilDiv(map.region.qEnd - map.region.qBegin, step);
  map.columns = ceilDiv(map.region.kvEnd - map.region.kvBegin, step);
  std::vector<Cell> blocks;
  for (int64_t q = map.region.qBegin; q < region.qEnd; q += step) {
    if (blocks.empty() || q % shape.qBlock == 0) blocks = blockRow(mask, b, h, q / shape.qBlock);
    for (int64_t kv = map.region.kvBegin; kv < region.kvEnd; kv += step) {
      Cell cell = blocks[size_t(kv / shape.kvBlock)];
      if (cell == Cell::Partial)
        cell = judgeCell(reader, b, h, {q, std::min(q + step, shape.qLen), kv, std::min(kv + step, shape.kvLen)});
      map.cells.push_back(cell);
    }
  }
  return map;
}

CellMap blocksOf(const BlockRuns& mask, int64_t b, int64_t h, const MaskRegion& region, const CellLimits& limits) {
  const BlockMaskShape& shape = mask.shape();
  const int64_t qFirst = region.qBegin / shape.qBlock, qLast = ceilDiv(region.qEnd, shape.qBlock);
  const int64_t kvFirst = region.kvBegin / shape.kvBlock, kvLast = ceilDiv(region.kvEnd, shape.kvBlock);
  const int64_t qGroup = std::max<int64_t>(1, ceilDiv(qLast - qFirst, limits.rows));
  const int64_t kvGroup = std::max<int64_t>(1, ceilDiv(kvLast - kvFirst, limits.columns));
  CellMap map;
  map.rows = ceilDiv(qLast - qFirst, qGroup);
  map.columns = ceilDiv(kvLast - kvFirst, kvGroup);
  map.region = {qFirst * shape.qBlock, std::min(qLast * shape.qBlock, shape.qLen), kvFirst * shape.kvBlock,
                std::min(kvLast * shape.kvBlock, shape.kvLen)};
  map.qStep = qGroup * shape.qBlock;
  map.kvStep = kvGroup * shape.kvBlock;
  std::vector<BlockCounts> cells(size_t(map.rows * map.columns));
  for (int64_t q = qFirst; q < qLast; ++q)
    for (int64_t column = 0; column < map.columns; ++column) {
      const int64_t first = kvFirst + column * kvGroup;
      addRow(cells[size_t((q - qFirst) / qGroup * map.columns + column)], mask.row(b, h, q), first,
             std::min(first + kvGroup, kvLast));
    }
  for (const BlockCounts& blocks : cells) map.cells.push_back(cellOf(blocks));
  return map;
}

} // namespace

CellMap mapOf(const BlockRuns& mask, const MaskReader& reader, int64_t b, int64_t h, const MaskRegion& region,
              const CellLimits& limits) {
  for (int64_t step = 1; step <= limits.elementsPerCell; step *= 2)
    if (region.qEnd - region.qBegin <= step * limits.rows && region.kvEnd - region.kvBegin <= step * limits.columns)
      return elementsOf(mask, reader, b, h, region, step);
  return blocksOf(mask, b, h, region, limits);
}

BlockCounts countBlocks(const BlockRuns& mask, const Heads& heads, const MaskRegion& region) {
  const BlockMaskShape& shape = mask.shape();
  const int64_t first = region.kvBegin / shape.kvBlock, last = ceilDiv(region.kvEnd, shape.kvBlock);
  BlockCounts counts;
  for (const auto& [b, h] : heads)
    for (int64_t q = region.qBegin / shape.qBlock; q < ceilDiv(region.qEnd, shape.qBlock); ++q)
      addRow(counts, mask.row(b, h, q), first, last);
  return counts;
}

} // namespace attnc::cli
