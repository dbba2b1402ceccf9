// Operands for which a sum, difference, product or left shift of integers leaves a type.
#pragma once

#include "analysis/range.h"

#include <optional>
#include <string>

namespace attnc::analysis {

struct WrapExample {
  std::string operation; ///< "3 * 1000000000"
  __int128 result = 0;   ///< the mathematical one
};

/// Returns the mathematical result of an operation on integers; 0 for operations that give no more bits.
__int128 exactResult(ir::Op op, __int128 a, __int128 b);
/// Returns operands of these ranges, small ones first, whose result is outside [lo, hi]; nullopt if all are inside.
std::optional<WrapExample> wrapExample(ir::Op op, const Range& a, const Range& b, __int128 lo, __int128 hi);

} // namespace attnc::analysis
