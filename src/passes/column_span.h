// The columns in which a condition holds, as one interval.
#pragma once

#include "ir/ir.h"

#include <optional>

namespace attnc::passes {

/// Which conditions known per row may become part of a span.
enum class RowConditions {
  Monotone, ///< those that move an edge in one direction as q_idx grows
  Any,
};

/// The condition holds exactly for the columns begin <= kv_idx < end, out of 0 <= kv_idx < kMaxExtent. Both bounds are
/// i32 values known per row and may lie outside this range. The span is empty if begin >= end.
struct ColumnSpan {
  ir::Value begin, end;
  bool isAll = false;    ///< whether the condition holds everywhere
  bool hasEdges = false; ///< whether each bound moves in one direction as q_idx grows and stays within 2^30
};

/// Returns the span of the condition `root`; nullopt if the analysis does not recognize its form. The module is one
/// after the passes, so row values are on one side of comparisons and the column on the other. Adds nodes to the
/// module.
std::optional<ColumnSpan> columnSpan(ir::Module& module, ir::Value root, RowConditions rows);

} // namespace attnc::passes
