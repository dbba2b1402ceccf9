// Builds a block mask from a mod, on the CPU. Intervals judge a tile; if they do not decide, its elements are evaluated
// until it is known to be partial.
#include "attnc/block_mask.h"

#include "analysis/tile_verdict.h"
#include "api/tile_elements.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "plan/mask_shape.h"
#include "support/parallel.h"
#include "support/try.h"

#include <algorithm>

namespace attnc {
namespace {

/// The kind of a block, from its elements inside [qLen, kvLen).
enum class Block { Empty, Partial, Full };

/// Blocks of one row of blocks, in increasing order.
struct BlockRow {
  std::vector<int32_t> partial, full;
};

/// Classifies blocks; each thread has its own.
class BlockJudge {
public:
  BlockJudge(const ir::Module& module, const ir::Bindings& bindings, const BlockMaskShape& shape)
      : interpreter(module, bindings), intervals(module, bindings), shape(shape) {}

  /// Classifies the blocks of a row. `row` counts over [batch, heads, qBlocks].
  BlockRow judgeRow(int64_t row) const {
    int64_t qBlocks = shape.qBlocks();
    int64_t b = row / qBlocks / shape.heads, h = row / qBlocks % shape.heads, qBlock = row % qBlocks;
    BlockRow result;
    for (int64_t kvBlock = 0; kvBlock < shape.kvBlocks(); ++kvBlock) {
      switch (judge(b, h, qBlock, kvBlock)) {
      case Block::Empty: break;
      case Block::Partial: result.partial.push_back(int32_t(kvBlock)); break;
      case Block::Full: result.full.push_back(int32_t(kvBlock)); break;
      }
    }
    return result;
  }

private:
  Block judge(int64_t b, int64_t h, int64_t qBlock, int64_t kvBlock) const {
    if (shape.boxes)
      return judgeBoxes(b, h, shape.boxes->queries.tokensIn(qBlock), shape.boxes->keys.tokensIn(kvBlock));
    analysis::ScoreRect tile{.b = b, .h = h, .qBegin = qBlock * shape.qBlock, .kvBegin = kvBlock * shape.kvBlock};
    tile.qEnd = std::min(tile.qBegin + shape.qBlock, shape.qLen);
    tile.kvEnd = std::min(tile.kvBegin + shape.kvBlock, shape.kvLen);
    analysis::Verdict verdict = intervals.judge(tile);
    if (verdict == analysis::Verdict::Undecided) verdict = judgeElements(interpreter, tile).verdict;
    return blockOf(verdict, tile.qEnd - tile.qBegin == shape.qBlock && tile.kvEnd - tile.kvBegin == shape.kvBlock);
  }

  /// Classifies a block of two boxes, given all of their tokens that lie on the grids.
  Block judgeBoxes(int64_t b, int64_t h, const std::vector<int64_t>& queries, const std::vector<int64_t>& keys) const {
    const auto isWhole = [](const BoxLattice& of, const std::vector<int64_t>& tokens) {
      return int64_t(tokens.size()) == of.tokensOfBox();
    };
    const analysis::ScoreRect around{b, h, queries.front(), queries.back() + 1, keys.front(), keys.back() + 1};
    analysis::Verdict verdict = intervals.judge(around);
    if (verdict == analysis::Verdict::Undecided) verdict = judgeElements(interpreter, b, h, queries, keys).verdict;
    return blockOf(verdict, isWhole(shape.boxes->queries, queries) && isWhole(shape.boxes->keys, keys));
  }

  static Block blockOf(analysis::Verdict verdict, bool isWhole) {
    switch (verdict) {
    case analysis::Verdict::AlwaysFalse: return Block::Empty;
    case analysis::Verdict::Undecided: return Block::Partial;
    case analysis::Verdict::AlwaysTrue: break;
    }
    return isWhole ? Block::Full : Block::Partial;
  }

  ir::Interpreter interpreter;
  analysis::TileJudge intervals;
  const BlockMaskShape& shape;
};

/// The rows as dense arrays, as wide as the longest list.
struct PackedRows {
  int64_t stride = 1;
  std::vector<int32_t> partialCount, partialIndex, fullCount, fullIndex;

  explicit PackedRows(const std::vector<BlockRow>& rows) {
    for (const BlockRow& row : rows) stride = std::max({stride, int64_t(row.partial.size()), int64_t(row.full.size())});
    for (const BlockRow& row : rows) {
      append(row.partial, partialCount, partialIndex);
      append(row.full, fullCount, fullIndex);
    }
  }

private:
  void append(const std::vector<int32_t>& list, std::vector<int32_t>& counts, std::vector<int32_t>& indices) const {
    counts.push_back(int32_t(list.size()));
    indices.insert(indices.end(), list.begin(), list.end());
    indices.resize(counts.size() * size_t(stride), 0);
  }
};

} // namespace

Expected<BlockMask> BlockMask::build(const Mod& mod, const Captures& captures, const ProblemShape& problem,
                                     const BlockMaskShape& shape) {
  const ir::Module& module = mod.module();
  ATTNC_TRY(plan::checkMaskProblem(module, problem, shape));
  ATTNC_TRY_AS(bindings, ir::bind(module, captures, problem));

  std::vector<BlockRow> rows(size_t(shape.batch * shape.heads * shape.qBlocks()));
  parallelFor(int64_t(rows.size()), [&](int64_t begin, int64_t end) {
    BlockJudge judge(module, *bindings, shape);
    for (int64_t row = begin; row < end; ++row) rows[size_t(row)] = judge.judgeRow(row);
  });

  PackedRows packed(rows);
  BlockMask mask;
  mask.extents = shape;
  mask.ofWholeMod = module.liftsMasks;
  mask.rows = {packed.stride, std::move(packed.partialCount), std::move(packed.partialIndex),
               std::move(packed.fullCount), std::move(packed.fullIndex)};
  return mask;
}

} // namespace attnc
