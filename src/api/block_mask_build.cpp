// Builds a block mask from a mod, on the CPU: from its runs of blocks. Boxes are judged one by one; if intervals do not
// decide, the elements of a block are evaluated until it is known to be partial.
#include "attnc/block_mask.h"
#include "attnc/block_runs.h"

#include "analysis/tile_verdict.h"
#include "api/tile_elements.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "launch/mask_shape.h"
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

/// Classifies blocks that are boxes; each thread has its own.
class BoxJudge {
public:
  BoxJudge(const ir::Module& module, const ir::Bindings& bindings, const BlockMaskShape& shape)
      : interpreter(module, bindings), intervals(module, bindings), shape(shape) {}

  /// Classifies the blocks of a row. `row` counts over [batch, heads, qBlocks].
  BlockRow judgeRow(int64_t row) const {
    const int64_t qBlocks = shape.qBlocks();
    const int64_t b = row / qBlocks / shape.heads, h = row / qBlocks % shape.heads, qBlock = row % qBlocks;
    const std::vector<int64_t> queries = shape.boxes->queries.tokensIn(qBlock);
    BlockRow result;
    for (int64_t kvBlock = 0; kvBlock < shape.kvBlocks(); ++kvBlock) {
      switch (judge(b, h, queries, shape.boxes->keys.tokensIn(kvBlock))) {
      case Block::Empty: break;
      case Block::Partial: result.partial.push_back(int32_t(kvBlock)); break;
      case Block::Full: result.full.push_back(int32_t(kvBlock)); break;
      }
    }
    return result;
  }

private:
  /// Classifies a block of two boxes, given all of their tokens that lie on the grids.
  Block judge(int64_t b, int64_t h, const std::vector<int64_t>& queries, const std::vector<int64_t>& keys) const {
    const auto isWhole = [](const BoxLattice& of, const std::vector<int64_t>& tokens) {
      return int64_t(tokens.size()) == of.tokensOfBox();
    };
    const analysis::ScoreRect around{b, h, queries.front(), queries.back() + 1, keys.front(), keys.back() + 1};
    analysis::Verdict verdict = intervals.judge(around);
    if (verdict == analysis::Verdict::Undecided) verdict = judgeElements(interpreter, b, h, queries, keys).verdict;
    switch (verdict) {
    case analysis::Verdict::AlwaysFalse: return Block::Empty;
    case analysis::Verdict::Mixed:
    case analysis::Verdict::Undecided: return Block::Partial;
    case analysis::Verdict::AlwaysTrue: break;
    }
    return isWhole(shape.boxes->queries, queries) && isWhole(shape.boxes->keys, keys) ? Block::Full : Block::Partial;
  }

  ir::Interpreter interpreter;
  analysis::TileJudge intervals;
  const BlockMaskShape& shape;
};

Expected<std::vector<BlockRow>> rowsOfBoxes(const Mod& mod, const Captures& captures, const ProblemShape& problem,
                                            const BlockMaskShape& shape) {
  ATTNC_TRY(plan::checkMaskProblem(mod.module(), problem, shape));
  ATTNC_TRY_AS(bindings, ir::bindOnHost(mod.module(), captures, problem));
  std::vector<BlockRow> rows(size_t(shape.batch * shape.heads * shape.qBlocks()));
  parallelFor(int64_t(rows.size()), [&](int64_t begin, int64_t end) {
    const BoxJudge judge(mod.module(), *bindings, shape);
    for (int64_t row = begin; row < end; ++row) rows[size_t(row)] = judge.judgeRow(row);
  });
  return rows;
}

/// The rows as dense arrays, as wide as the longest list.
struct PackedRows {
  int64_t stride = 1;
  std::vector<int32_t> partialCount, partialIndex, fullCount, fullIndex;

  explicit PackedRows(const std::vector<BlockRow>& rows) {
    for (const BlockRow& row : rows) stride = std::max({stride, int64_t(row.partial.size()), int64_t(row.full.size())});
    reserve(rows.size());
    for (const BlockRow& row : rows) {
      append(row.partial, partialCount, partialIndex);
      append(row.full, fullCount, fullIndex);
    }
  }

  explicit PackedRows(const BlockRuns& runs) {
    const BlockMaskShape& shape = runs.shape();
    const auto eachRow = [&](auto visit) {
      for (int64_t b = 0; b < shape.batch; ++b)
        for (int64_t h = 0; h < shape.heads; ++h)
          for (int64_t q = 0; q < shape.qBlocks(); ++q) visit(runs.row(b, h, q));
    };
    eachRow([&](const BlockRuns::Row& row) {
      int64_t partial = 0, full = 0;
      for (const BlockRun& run : row) (run.isFull ? full : partial) += run.end - run.begin;
      stride = std::max({stride, partial, full});
    });
    reserve(size_t(shape.batch * shape.heads * shape.qBlocks()));
    BlockRow blocks;
    eachRow([&](const BlockRuns::Row& row) {
      blocks.partial.clear();
      blocks.full.clear();
      for (const BlockRun& run : row)
        for (int32_t at = run.begin; at < run.end; ++at) (run.isFull ? blocks.full : blocks.partial).push_back(at);
      append(blocks.partial, partialCount, partialIndex);
      append(blocks.full, fullCount, fullIndex);
    });
  }

private:
  void reserve(size_t rows) {
    for (auto* counts : {&partialCount, &fullCount}) counts->reserve(rows);
    for (auto* indices : {&partialIndex, &fullIndex}) indices->reserve(rows * size_t(stride));
  }
  void append(const std::vector<int32_t>& list, std::vector<int32_t>& counts, std::vector<int32_t>& indices) const {
    counts.push_back(int32_t(list.size()));
    indices.insert(indices.end(), list.begin(), list.end());
    indices.resize(counts.size() * size_t(stride), 0);
  }
};

Expected<PackedRows> packedRows(const Mod& mod, const Captures& captures, const ProblemShape& problem,
                                const BlockMaskShape& shape) {
  if (shape.boxes) {
    ATTNC_TRY_AS(rows, rowsOfBoxes(mod, captures, problem, shape));
    return PackedRows(*rows);
  }
  ATTNC_TRY_AS(runs, BlockRuns::build(mod, captures, problem, shape));
  return PackedRows(*runs);
}

} // namespace

Expected<BlockMask> BlockMask::build(const Mod& mod, const Captures& captures, const ProblemShape& problem,
                                     const BlockMaskShape& shape) {
  ATTNC_TRY_AS(packed, packedRows(mod, captures, problem, shape));
  BlockMask mask;
  mask.extents = shape;
  mask.ofWholeMod = mod.module().liftsMasks;
  mask.rows = {packed->stride, std::move(packed->partialCount), std::move(packed->partialIndex),
               std::move(packed->fullCount), std::move(packed->fullIndex)};
  return mask;
}

} // namespace attnc
