// Operators over objects: scalars (scalar_operators.h), sequences, and arrays, which go element by element.
#pragma once

#include "dsl/objects/context.h"

namespace attnc::dsl {

/// Applies one of Python's binary operators to numbers, arrays, sequences or strings.
Object binary(Context& context, BinaryOp op, Object left, Object right);
/// Applies -, +, ~ or `not`.
Object unary(Context& context, UnaryOp op, Object operand);

/// Returns what `__len__` of the object's class returns, an int; nullopt if the class does not define it.
std::optional<Object> length(Context& context, Instance& instance);

/// Returns the truth of a known value. A traced one is an error.
bool truth(Context& context, Object value);

} // namespace attnc::dsl
