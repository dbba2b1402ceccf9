// Arithmetic of numbers that are known before launch, as Python does it: int (64 bits, overflow is an error), float,
// and bool as an int.
#pragma once

#include "dsl/objects/context.h"

namespace attnc::dsl {

/// Both operands are known numbers. Errors: overflow, division by zero, operands of the wrong type.
Object knownBinary(Context& context, BinaryOp op, Object left, Object right);
/// Neg, Pos, Invert. Unlike in Python, ~ of a bool is its negation, as for torch's bool tensors.
Object knownUnary(Context& context, UnaryOp op, Object operand);
/// Eq, Ne, Lt, Le, Gt, Ge of two known numbers.
bool knownCompare(CompareOp op, Object left, Object right);

/// Precondition of both: isKnownNumber().
double toDouble(Object number);
/// A float truncates; one outside int64, or NaN, is an error.
int64_t toInt(Context& context, Object number);

} // namespace attnc::dsl
