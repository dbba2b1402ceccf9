// Operators over the tracer's values: known numbers are computed, traced ones become IR, arrays go element by element.
//
// Types. A known number adopts the type of the traced operand it meets: an int beside an i32 is an i32 (i64 if it does
// not fit), beside an f32 an f32; a float makes both f32. Of two traced operands the later in bool, i32, i64, f32 wins.
// Arithmetic on bools is arithmetic on 0 and 1, except for `*` of two bools, which is their conjunction.
#pragma once

#include "dsl/objects/context.h"

namespace attnc::dsl {

/// Python's binary operators: numbers, arrays, sequences, strings.
Value binary(Context& context, BinaryOp op, Value left, Value right);
/// -, +, ~ and `not`.
Value unary(Context& context, UnaryOp op, Value operand);
/// ==, !=, <, <=, >, >=, is, in and their negations.
Value compare(Context& context, CompareOp op, Value left, Value right);

/// The truth of a known value; a traced one is an error.
bool truth(Context& context, Value value);
/// `not` as a number: !x of a bool, x == 0 of others.
Value logicalNot(Context& context, Value operand);
/// A number as a bool: itself, or `!= 0`.
Value asBool(Context& context, Value operand);

// Scalars (isNumber()) only ----------------------------------------------------------------------------------------

/// The type in which two or more scalars meet. With `arithmetic`, bools meet in i32.
ir::Type promote(Context& context, llvm::ArrayRef<Value> scalars, bool arithmetic);
/// A scalar as an IR value of this type; a known one becomes a constant.
ir::Value lift(Context& context, Value scalar, ir::Type type);
/// A scalar converted to one of the IR's types; a known one stays known.
Value cast(Context& context, Value scalar, ir::Type type);
/// The same value, through which no gradient passes; only f32 has one.
ir::Value stopGradient(Context& context, ir::Value value);
/// Two scalars through an operation of the kind Arith, in their common type; not both are known.
Value arith(Context& context, ir::Op op, Value left, Value right);
/// minimum, maximum of two scalars; NaN if one is.
Value minMax(Context& context, bool isMin, Value left, Value right);
/// The arm that the condition (a bool, traced or known) picks, in the arms' common type.
Value select(Context& context, Value condition, Value yes, Value no);

/// A scalar out of a value: an indexed tensor is read, a number is itself; anything else is an error that names `what`.
Value scalar(Context& context, Value value, const char* what);
/// An indexed tensor read, anything else unchanged.
Value decay(Context& context, Value value);

} // namespace attnc::dsl
