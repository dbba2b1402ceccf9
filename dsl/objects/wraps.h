// Numbers modulo 2^width, and warnings of ints that wrap around.
//
// In: an operation on ints, and the ranges of its operands. Out: a warning with an example, if a result may not fit the
// dtype, and either operand is a number for which few values fit. Not: sums and products of captured ints whose values
// nobody knows, since most of them fit.
#pragma once

#include "dsl/objects/context.h"

namespace attnc::dsl {

/// Returns the name of a dtype in torch; "int" for Python's numbers.
const char* nameOf(Ints ints);
/// Returns the number modulo 2^width, as an int of this dtype.
int64_t wrapped(int64_t number, Ints ints);

/// Warns of an operation at the current place, if it computes ints of this dtype.
void warnOfWrap(Context& context, ir::Op op, Ints ints, llvm::ArrayRef<ir::Value> operands);
/// Warns of a known number that the dtype of the tensor it meets does not hold.
void warnOfNumber(Context& context, int64_t number, Ints ints);

} // namespace attnc::dsl
