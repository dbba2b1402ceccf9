// score_mod = f + shift: a penalty that is linear in the distance of q_idx and kv_idx, s * (kv_idx - q_idx), split into
// a term of the column, which stays in f, and one of the row, which the softmax does not see: it changes the sum of
// exponentials alone. ALiBi costs a score one sum then.
//
// Rounding: far from position 0 both terms are large, and their difference is not. So a kernel must count positions
// from near by, from the first row of its tile, say: f and shift use f32 positions in this one term alone, and any
// origin that is the same for both gives the same sum.
#pragma once

#include "ir/ir.h"

#include <optional>

namespace attnc::passes {

struct RowShift {
  ir::Module module; ///< the given one, with values added at the end; score_mod is f
  ir::Value slope;   ///< known per head
  ir::Value column;  ///< slope * f32(kv_idx): the only use of f32(kv_idx) that is left
  ir::Value shift;   ///< known per row: the only use of f32(q_idx) that is left
};

/// Nothing where score_mod is no sum with such a term, or uses f32 positions elsewhere.
std::optional<RowShift> rowShift(const ir::Module& module);

} // namespace attnc::passes
