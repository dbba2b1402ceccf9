// mask_mod over a tile, element by element: what intervals leave undecided.
#pragma once

#include "ir/interpreter.h"
#include "passes/tile_verdict.h"

namespace attnc {

/// Undecided here means that some elements live and some do not. `evaluations` grows by the evaluations it took.
passes::Verdict judgeElements(const ir::Interpreter& interpreter, const passes::Tile& tile, int64_t& evaluations);

} // namespace attnc
