// Arithmetic of numbers that are known before launch, as Python does it: int (64 bits, overflow is an error), float,
// and bool as an int.
#pragma once

#include "dsl/objects/context.h"

namespace attnc::dsl {

/// Both operands are known numbers. Errors: overflow, division by zero, operands of the wrong type.
Value knownBinary(Context& context, BinaryOp op, Value left, Value right);
/// Neg, Pos, Invert. Not as Python does it: ~ of a bool is its negation, as for torch's bool tensors.
Value knownUnary(Context& context, UnaryOp op, Value operand);
/// Eq, Ne, Lt, Le, Gt, Ge of two known numbers.
bool knownCompare(CompareOp op, Value left, Value right);

/// Precondition of both: isKnownNumber().
double toDouble(Value number);
/// A float truncates; one outside int64, or NaN, is an error.
int64_t toInt(Context& context, Value number);

} // namespace attnc::dsl
