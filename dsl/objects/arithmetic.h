// Operators over objects: known numbers are computed, traced ones become IR, arrays go element by element.
//
// Types. A known number adopts the type of the traced operand it meets: an int beside an i32 is an i32 (i64 if it does
// not fit), beside an f32 an f32; a float makes both f32. Of two traced operands the later in bool, i32, i64, f32 wins.
// Arithmetic on bools is arithmetic on 0 and 1, except for `*` of two bools, which is their conjunction.
#pragma once

#include "dsl/objects/context.h"

namespace attnc::dsl {

/// Python's binary operators: numbers, arrays, sequences, strings.
Object binary(Context& context, BinaryOp op, Object left, Object right);
/// -, +, ~ and `not`.
Object unary(Context& context, UnaryOp op, Object operand);
/// ==, !=, <, <=, >, >=, is, in and their negations.
Object compare(Context& context, CompareOp op, Object left, Object right);

/// What `__len__` of an object's class says, an int; nothing if it has none.
std::optional<Object> length(Context& context, Instance& instance);

/// The truth of a known value; a traced one is an error.
bool truth(Context& context, Object value);
/// `not` as a number: !x of a bool, x == 0 of others.
Object logicalNot(Context& context, Object operand);
/// A number as a bool: itself, or `!= 0`.
Object asBool(Context& context, Object operand);

// Scalars (isNumber()) only ----------------------------------------------------------------------------------------

/// The common type of two or more scalars. With `arithmetic`, bools count as i32.
ir::Type promote(Context& context, llvm::ArrayRef<Object> scalars, bool arithmetic);
/// A scalar as an IR value of this type; a known one becomes a constant.
ir::Value lift(Context& context, Object scalar, ir::Type type);
/// A scalar converted to one of the IR's types; a known one stays known.
Object cast(Context& context, Object scalar, ir::Type type);
/// The same value, through which no gradient passes; only f32 has one.
ir::Value stopGradient(Context& context, ir::Value value);
/// Two scalars through an operation of the kind Arith, in their common type; not both are known.
Object arith(Context& context, ir::Op op, Object left, Object right);
/// minimum, maximum of two scalars; NaN if one is.
Object minMax(Context& context, bool isMin, Object left, Object right);
/// The arm that the condition (a bool, traced or known) picks, in the arms' common type.
Object select(Context& context, Object condition, Object yes, Object no);

/// A scalar out of a value: an indexed tensor is read, a number is itself; anything else is an error that names `what`.
Object scalar(Context& context, Object value, const char* what);
/// An indexed tensor read, anything else unchanged.
Object decay(Context& context, Object value);

} // namespace attnc::dsl
