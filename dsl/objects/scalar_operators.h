// Operators of two scalars, and of one: known numbers are computed, traced ones become IR.
#pragma once

#include "dsl/objects/context.h"

namespace attnc::dsl {

/// Applies one of Python's binary operators.
Object binaryScalars(Context& context, BinaryOp op, Object left, Object right);
/// Applies ==, !=, <, <=, > or >=.
Object compareScalars(Context& context, CompareOp op, Object left, Object right);
/// Returns `not` as a number: !x for a bool, x == 0 for others.
Object logicalNot(Context& context, Object operand);
/// Returns the minimum or maximum of two scalars; NaN if either is NaN.
Object minMax(Context& context, bool isMin, Object left, Object right);

} // namespace attnc::dsl
