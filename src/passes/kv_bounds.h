// The live columns of a row as one interval, where mask_mod is made of comparisons that say so.
//
// In: a module after the passes (they put what a row knows on one side of a comparison and the column on the other).
// Out: two i32 values that know b, h and q_idx: in each row, exactly the columns from the first to the one before the
// second live. As q_idx grows, each moves in one direction only, so that the ends of a range of rows tell all of it.
// This covers causal masks, windows, prefixes, chunks (kv_idx // 64 == q_idx // 64), lengths per batch entry, and
// choices between them by head or by run-time scalars; for all values of captures.
// Not: unions with gaps (global tokens beside a window), captured data by row or column (documents).
#pragma once

#include "analysis/monotony.h"

#include <optional>

namespace attnc::passes {

/// One end of the interval.
struct KvEdge {
  ir::Value value;
  bool falls = false; ///< as q_idx grows; else it never falls
};

struct KvBounds {
  ir::Module module; ///< the given one, with values added at the end
  /// Column kv of a row lives if and only if begin <= kv < end, for 0 <= kv < KV_LEN. Both may lie outside
  /// [0, KV_LEN], at most 2^30 away from 0; begin > end is an empty row, too.
  KvEdge begin, end;
};

/// Nothing where the analysis cannot tell, or where there is nothing to tell: all columns live.
std::optional<KvBounds> kvBounds(const ir::Module& module);

/// Whether a mod computes the columns that a tile visits, and needs no block lists.
bool hasBounds(const ir::Module& module);

} // namespace attnc::passes
