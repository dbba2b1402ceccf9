// Scalars: numbers that are known or traced. Conversion to the IR's types.
//
// Types: a known number adopts the type of the traced operand. An int becomes an i32 next to an i32 (i64 if it does not
// fit) and an f32 next to an f32. A float makes both operands f32. For two traced operands, the type that comes later
// in bool, i32, i64, f32 wins. Arithmetic on bools is arithmetic on 0 and 1, but `*` of two bools is their conjunction.
#pragma once

#include "dsl/objects/context.h"

namespace attnc::dsl {

/// Returns the common type of two or more scalars. With `arithmetic`, bools count as i32.
ir::Type promote(Context& context, llvm::ArrayRef<Object> scalars, bool arithmetic);
/// Converts a scalar to an IR value of this type. A known one becomes a constant.
ir::Value lift(Context& context, Object scalar, ir::Type type);
/// Converts a scalar to one of the IR's types. A known one stays known.
Object cast(Context& context, Object scalar, ir::Type type);
/// Returns the same value without a gradient. Only f32 values have one.
ir::Value stopGradient(Context& context, ir::Value value);
/// Applies an operation of the kind Arith to two scalars, in their common type. At least one is traced.
Object arith(Context& context, ir::Op op, Object left, Object right);
/// Returns the arm that the condition (a bool, traced or known) picks, in the arms' common type.
Object select(Context& context, Object condition, Object yes, Object no);
/// Converts a number to a bool: a bool is itself, others are compared `!= 0`.
Object asBool(Context& context, Object operand);

} // namespace attnc::dsl
