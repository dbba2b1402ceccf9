// What the pass `sequences` did, taken back for those who go by rows.
#pragma once

#include "ir/ir.h"

namespace attnc::passes {

/// A module after that pass, with q_idx the row of q again: what took it as a position takes q_offset plus the row.
/// What is said of sequences is no output of the result.
ir::Module byRows(const ir::Module& module);

} // namespace attnc::passes
