#include "inspect/block_map.h"

#include "api/mask_regions.h"
#include "api/tile_elements.h"
#include "attnc/explain.h"
#include "inspect/work.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "support/try.h"

#include <llvm/ADT/STLFunctionalExtras.h>

#include <algorithm>

namespace attnc {
namespace {

constexpr int64_t kMostCells = 128; // along each axis
constexpr int64_t kMostHeads = 16;  // that are looked at
constexpr size_t kMostMaps = 4;

enum class Found : uint8_t { Empty, Partial, Full, Unknown };

/// Calls `visit` for disjoint regions of a head that cover its mask. A region that is not Unknown is wholly of one
/// kind, apart from blocks that cross the ends of the lengths, which may count as full.
void visitRegions(const MaskRegions& mask, const ir::Interpreter& interpreter, int64_t head, int64_t budget,
                  llvm::function_ref<void(const Region&, Found)> visit) {
  const auto kindOf = [](analysis::Verdict verdict) {
    switch (verdict) {
    case analysis::Verdict::AlwaysFalse: return Found::Empty;
    case analysis::Verdict::AlwaysTrue: return Found::Full;
    case analysis::Verdict::Mixed:
    case analysis::Verdict::Undecided: break;
    }
    return Found::Partial;
  };
  const HeadRegions::Rest rest =
      HeadRegions(mask, head).judge(budget / 8, [&](const Region& region, analysis::Verdict verdict) {
        visit(region, kindOf(verdict));
      });
  const std::optional<ir::Value> root = mask.module.output(ir::kMask);
  const int64_t cost = root ? operationsOf(mask.module, *root) : 1;
  int64_t left = budget / cost; // evaluations
  for (const Region& block : rest.open) {
    const int64_t scores = int64_t(mask.shape.qBlock) * mask.shape.kvBlock;
    if (left < scores) {
      visit(block, Found::Unknown);
      continue;
    }
    const ElementsSeen seen = judgeElements(interpreter, mask.tileOf(block, head));
    left -= seen.evaluations;
    visit(block, kindOf(seen.verdict));
  }
  for (const Region& region : rest.unjudged) visit(region, Found::Unknown);
}

/// Blocks of a cell that are full, of any kind but empty, and unknown.
struct CellCount {
  int64_t full = 0, live = 0, unknown = 0;

  BlockState stateOf(int64_t blocks) const {
    if (unknown) return BlockState::Unknown;
    if (live == 0) return BlockState::Empty;
    if (full == 0) return BlockState::Partial;
    return full == blocks ? BlockState::Full : BlockState::Mixed;
  }
};

/// Returns the map of one head, without its name.
BlockMap mapOf(const MaskRegions& mask, const ir::Interpreter& interpreter, int64_t head, int64_t budget) {
  const BlockMaskShape& shape = mask.shape;
  const int64_t qBlocks = shape.qBlocks(), kvBlocks = shape.kvBlocks();
  const auto perCell = [](int64_t blocks) {
    int64_t step = 1;
    while ((blocks + step - 1) / step > kMostCells) step *= 2;
    return step;
  };
  const int64_t q = perCell(qBlocks), kv = perCell(kvBlocks);
  BlockMap map{.rows = (qBlocks + q - 1) / q,
               .columns = (kvBlocks + kv - 1) / kv,
               .qStep = q * shape.qBlock,
               .kvStep = kv * shape.kvBlock};
  std::vector<CellCount> counts(size_t(map.rows * map.columns));
  const int64_t wholeRows = shape.qLen / shape.qBlock, wholeColumns = shape.kvLen / shape.kvBlock;
  const auto within = [](int64_t first, int64_t end, int64_t limit) {
    return std::max<int64_t>(0, std::min(end, limit) - first);
  };
  visitRegions(mask, interpreter, head, budget, [&](const Region& region, Found found) {
    if (found == Found::Empty) return;
    const int64_t qFirst = int64_t(region.q) << region.qLevel, qEnd = qFirst + mask.qBlocksOf(region);
    const int64_t kvFirst = int64_t(region.kv) << region.kvLevel, kvEnd = kvFirst + mask.kvBlocksOf(region);
    for (int64_t row = qFirst / q; row * q < qEnd; ++row)
      for (int64_t column = kvFirst / kv; column * kv < kvEnd; ++column) {
        const int64_t top = std::max(row * q, qFirst), bottom = std::min((row + 1) * q, qEnd);
        const int64_t left = std::max(column * kv, kvFirst), right = std::min((column + 1) * kv, kvEnd);
        CellCount& count = counts[size_t(row * map.columns + column)];
        count.live += (bottom - top) * (right - left);
        if (found == Found::Unknown) count.unknown = 1;
        if (found == Found::Full) count.full += within(top, bottom, wholeRows) * within(left, right, wholeColumns);
      }
  });
  for (int64_t row = 0; row < map.rows; ++row)
    for (int64_t column = 0; column < map.columns; ++column) {
      const int64_t blocks = std::min(q, qBlocks - row * q) * std::min(kv, kvBlocks - column * kv);
      map.cells.push_back(counts[size_t(row * map.columns + column)].stateOf(blocks));
    }
  return map;
}

} // namespace

std::vector<BlockMap> mapBlocks(const ir::Module& module, const ir::Bindings& bindings, const BlockMaskShape& shape,
                                int64_t budget) {
  std::vector<BlockMap> maps;
  const int64_t heads = std::min(shape.batch * shape.heads, kMostHeads);
  if (heads == 0 || shape.qBlocks() == 0 || shape.kvBlocks() == 0) return maps;
  const MaskRegions mask(module, bindings, shape, budget / heads);
  const ir::Interpreter interpreter(module, bindings);
  for (int64_t head = 0; head < heads; ++head) {
    BlockMap map = mapOf(mask, interpreter, head, budget / heads);
    const auto found =
        std::find_if(maps.begin(), maps.end(), [&](const BlockMap& other) { return other.cells == map.cells; });
    if (found == maps.end() && maps.size() == kMostMaps) continue;
    BlockMap& place = found == maps.end() ? maps.emplace_back(std::move(map)) : *found;
    place.heads.emplace_back(head / shape.heads, head % shape.heads);
  }
  return maps;
}

BlockRows rowsOfBlocks(const ir::Module& module, const ir::Bindings& bindings, const BlockMaskShape& shape,
                       bool byColumns, int64_t budget) {
  const int64_t heads = shape.batch * shape.heads, rows = byColumns ? shape.kvBlocks() : shape.qBlocks();
  BlockRows all{.rows = std::vector<BlockRow>(size_t(heads * rows))};
  if (all.rows.empty() || shape.kvBlocks() == 0 || shape.qBlocks() == 0) return all;
  const MaskRegions mask(module, bindings, shape, budget / heads);
  const ir::Interpreter interpreter(module, bindings);
  for (int64_t head = 0; head < heads; ++head)
    visitRegions(mask, interpreter, head, budget / heads, [&](const Region& region, Found found) {
      if (found == Found::Empty) return;
      if (found == Found::Unknown) all.isEstimate = true;
      int64_t top = int64_t(region.q) << region.qLevel, height = mask.qBlocksOf(region);
      int64_t first = int64_t(region.kv) << region.kvLevel, blocks = mask.kvBlocksOf(region);
      if (byColumns) std::swap(top, first), std::swap(height, blocks);
      for (int64_t i = 0; i < height; ++i) {
        BlockRow& row = all.rows[size_t(head * rows + top + i)];
        row.live += blocks;
        row.first = std::min(row.first, first);
        row.last = std::max(row.last, first + blocks - 1);
        if (found != Found::Full) continue;
        row.full += blocks;
        row.firstFull = std::min(row.firstFull, first);
        row.lastFull = std::max(row.lastFull, first + blocks - 1);
      }
    });
  return all;
}

Expected<std::vector<BlockMap>> mapBlocks(const Mod& mod, const Captures& captures, const ProblemShape& problem,
                                          const BlockMaskShape& shape) {
  ATTNC_TRY(checkBlocks(shape, problem, "a map"));
  ATTNC_TRY_AS(bindings, ir::bind(mod.module(), captures, problem));
  return mapBlocks(mod.module(), *bindings, shape);
}

} // namespace attnc
