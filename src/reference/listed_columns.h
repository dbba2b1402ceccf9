// The columns that a block mask lists for a row.
#pragma once

#include "attnc/block_mask.h"
#include "attnc/problem.h"
#include "ir/interpreter.h"
#include "reference/sequences.h"

#include <vector>

namespace attnc::reference {

/// Columns [begin, end) of a row.
struct ColumnRange {
  int64_t begin, end;
  bool full; ///< whether all are live, so that mask_mod is skipped
};

/// Writes the columns that the mask lists for row q of (b, h), its sequence's own, in order; without a mask, all
/// columns. Reads the mask's lists by row, which are in host memory. Preconditions: the mask is one of the problem, and
/// BlockMask::fromLists() accepts it.
void listColumns(const BlockMaskView* mask, const ProblemShape& problem, int64_t b, int64_t h, int64_t q,
                 std::vector<ColumnRange>& ranges);

/// Writes the columns of a row that live: listed, below the sequence's KV length, and not masked. `position`: of the
/// query, as the mod sees it.
void listLiveColumns(const BlockMaskView* mask, const ProblemShape& problem, const ir::Interpreter& interpreter,
                     const QueryRow& row, int64_t position, int64_t kvLength, std::vector<int64_t>& live);

} // namespace attnc::reference
