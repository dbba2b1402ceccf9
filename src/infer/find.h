// The shortest expression of a mask.
#pragma once

#include "infer/problem.h"

namespace attnc::inferred {

/// Finds the expression. `mask` has batch * heads slices, which differ along each axis of more than one. `isQuick`:
/// whether tables of blocks and intervals are not looked for.
Expr find(const Relation& mask, int64_t batch, int64_t heads, bool isQuick = false);

/// Returns the expression of a table of all elements.
Expr tableOfBits(const Relation& mask, int64_t batch, int64_t heads);

} // namespace attnc::inferred
