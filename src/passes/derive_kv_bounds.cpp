// In: a module after the passes (they put what a row knows on one side of a comparison and the column on the other).
// Out: where mask_mod is made of comparisons that say so, the live columns of a row as one interval: the outputs
// kv_begin and kv_end. As q_idx grows, each moves in one direction only, so that the ends of a range of rows tell all
// of it.
//
//   mask = %q_idx - 64 <= %kv_idx & %kv_idx <= %q_idx
//                                           =>   kv_begin = %q_idx - 64, kv_end = %q_idx + 1
//
// This covers causal masks, windows, prefixes, chunks (kv_idx // 64 == q_idx // 64), lengths per batch entry, and
// choices between them by head or by run-time scalars; for all values of captures.
// Not: unions with gaps (global tokens beside a window), captured data by row or column (documents); a mask of which
// all columns live.
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
