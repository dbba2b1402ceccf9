// What a block mask leaves of the rows of a problem.
#pragma once

#include "attnc/block_mask.h"
#include "attnc/error.h"
#include "attnc/problem.h"

#include <vector>

namespace attnc::reference {

/// Columns [begin, end) of a row.
struct ColumnRange {
  int64_t begin, end;
  bool full; ///< they all live: mask_mod is not asked
};

/// Whether a mask is for the problem. Errors are Blame::Environment. Null: there is none.
Status checkBlockMask(const BlockMaskView* mask, const ProblemShape& problem);

/// Writes the columns that the mask lists for row q of (b, h), in order; without a mask, all columns. Of the mask,
/// lists by row count, which are in host memory. Precondition: checkBlockMask().
void listColumns(const BlockMaskView* mask, const ProblemShape& problem, int64_t b, int64_t h, int64_t q,
                 std::vector<ColumnRange>& ranges);

} // namespace attnc::reference
