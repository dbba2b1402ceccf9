// In: a module after the passes (row values are on one side of comparisons, the column on the other). Out: the live
// columns of a row as one interval, if mask_mod consists of comparisons that describe one: the outputs kv_begin and
// kv_end. Each moves in one direction only as q_idx grows, so the first and last row bound a range of rows.
//
//   mask = %q_idx - 64 <= %kv_idx & %kv_idx <= %q_idx
//                                           =>   kv_begin = %q_idx - 64, kv_end = %q_idx + 1
//
// Recognized, for all values of captures: causal masks, windows, prefixes, chunks (kv_idx // 64 == q_idx // 64),
// lengths per batch entry, and choices between these by head or by run-time scalars.
// Not: unions with gaps (global tokens plus a window), captured data by row or column (documents), masks for which all
// columns are live.
#include "passes/column_span.h"
#include "passes/pass.h"

namespace attnc::passes {

Status deriveKvBounds(ir::Module& module, const PassContext&) {
  const std::optional<ir::Value> root = module.output(ir::kMask);
  if (!root || module.output(ir::kKvBegin)) return {};
  ir::Module with = module;
  const std::optional<ColumnSpan> span = columnSpan(with, *root, RowConditions::Monotone);
  if (!span || span->isAll || !span->hasEdges) return {};
  with.setOutput(ir::kKvBegin, span->begin);
  with.setOutput(ir::kKvEnd, span->end);
  module = std::move(with);
  return {};
}

} // namespace attnc::passes
