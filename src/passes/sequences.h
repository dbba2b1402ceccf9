// The pass `sequences`, undone for users that count by rows.
#pragma once

#include "ir/ir.h"

namespace attnc::passes {

/// Returns a module after that pass with q_idx as the row of q again: each use as a position becomes q_offset plus the
/// row. The result has no outputs about sequences.
ir::Module byRows(const ir::Module& module);

} // namespace attnc::passes
