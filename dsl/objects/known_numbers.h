// Arithmetic of numbers that are known before launch, by Python's rules: int (64 bits, overflow is an error), float,
// and bool as an int.
#pragma once

#include "dsl/objects/context.h"

namespace attnc::dsl {

/// Applies a binary operator to two known numbers. Errors: overflow, division by zero, operands of the wrong type.
Object knownBinary(Context& context, BinaryOp op, Object left, Object right);
/// Applies Neg, Pos or Invert. Unlike in Python, ~ of a bool is its negation, as for torch's bool tensors.
Object knownUnary(Context& context, UnaryOp op, Object operand);
/// Compares two known numbers: Eq, Ne, Lt, Le, Gt, Ge.
bool knownCompare(CompareOp op, Object left, Object right);

/// Precondition of both: isKnownNumber().
double toDouble(Object number);
/// Truncates a float. One outside int64, or NaN, is an error.
int64_t toInt(Context& context, Object number);

} // namespace attnc::dsl
