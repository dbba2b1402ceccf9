// The columns in which a condition holds, as one interval.
#pragma once

#include "ir/ir.h"

#include <optional>

namespace attnc::passes {

/// What of conditions that rows decide alone is taken.
enum class RowConditions {
  Monotone, ///< what moves an edge in one direction as q_idx grows
  Any,
};

/// Those columns with begin <= kv_idx < end, both i32 values of the row: the condition holds there and nowhere else, for
/// all 0 <= kv_idx < kMaxExtent. Either may lie outside; no column lives where begin >= end.
struct ColumnSpan {
  ir::Value begin, end;
  bool isAll = false;    ///< it holds everywhere
  bool hasEdges = false; ///< each of the two moves in one direction as q_idx grows, and stays within 2^30
};

/// The span of `root`, a condition of a module after the passes (they put what a row knows on one side of a comparison
/// and the column on the other). It adds nodes to the module. Nothing where the condition does not say so.
std::optional<ColumnSpan> columnSpan(ir::Module& module, ir::Value root, RowConditions rows);

} // namespace attnc::passes
