// Scalars: numbers that are known or traced. Conversion to the IR's types.
//
// Types are those of torch. A float makes both operands f32. For two ints, the dtypes of tensors decide, as
// torch.result_type of 0-d tensors: i8 with u8 is i16, otherwise the wider one. Python's numbers take the dtype of the
// tensor, modulo 2^width. Arithmetic on bools is arithmetic on 0 and 1, but `*` of two bools is their conjunction.
//
// Small ints and i32 are computed in i32, and wrap at their width. Other ints mean 64 bits. They are computed in i32
// where intervals show that this is the same.
#pragma once

#include "dsl/objects/context.h"

namespace attnc::dsl {

/// The type in which scalars meet.
struct Meeting {
  ir::Type type;              ///< that of the IR; for ints, the type that holds all operands
  Ints ints = Ints::Python;   ///< of ints
  Meeting(ir::Type type) : type(type), ints(type == ir::Type::I32 ? Ints::I32 : Ints::I64) {}
  Meeting(ir::Type type, Ints ints) : type(type), ints(ints) {}
  bool isFloat() const { return type == ir::Type::F32; }
};

/// Whether the value is a bool, known or traced.
bool isBool(Context& context, Object value);
/// Whether the value is an int, known or traced. A bool is none.
bool isInt(Context& context, Object value);
/// Whether the value is a float, known or traced.
bool isFloat(Context& context, Object value);
/// Returns the dtype of scalars that meet in this type.
NumberType numberTypeOf(Meeting type);
/// Returns the number modulo 2^width, as an int of this dtype.
int64_t wrapped(int64_t number, Ints ints);

/// Returns the common type of scalars. With `arithmetic`, bools count as ints.
Meeting promote(Context& context, llvm::ArrayRef<Object> scalars, bool arithmetic);
/// Converts a scalar to an IR value of this type. A known one becomes a constant.
ir::Value lift(Context& context, Object scalar, Meeting type);
/// Converts a scalar to a type that the IR computes in, or to a small int. A known one stays known.
Object cast(Context& context, Object scalar, NumberType type);
inline Object cast(Context& context, Object scalar, ir::Type type) { return cast(context, scalar, NumberType(type)); }
/// Returns the same value without a gradient. Only f32 values have one.
Object stopGradient(Context& context, Object value);
/// Whether an operation on ints means 64 bits, and its result may not fit the 32 of type.type.
bool needs64(Context& context, ir::Op op, Meeting type, llvm::ArrayRef<ir::Value> operands);
/// Applies an operation to operands of type.type. The result wraps at the width of type.ints.
Object operate(Context& context, ir::Op op, Meeting type, llvm::ArrayRef<ir::Value> operands);
/// Applies an operation of the kind Arith to two scalars, in their common type. At least one is traced.
Object arith(Context& context, ir::Op op, Object left, Object right);
/// Returns the arm that the condition (a bool, traced or known) picks, in the arms' common type.
Object select(Context& context, Object condition, Object yes, Object no);
/// Refuses a known int that does not fit the dtype of the tensor `other`, as torch does where it does not compute.
void checkFits(Context& context, Object known, Object other);
/// Converts a number to a bool: a bool is itself, others are compared `!= 0`.
Object asBool(Context& context, Object operand);

} // namespace attnc::dsl
