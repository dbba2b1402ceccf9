// Warnings of ints that wrap around.
//
// In: an operation on ints, and the ranges of its operands. Out: a warning with an example, if a result may not fit the
// dtype, and either operand is a number for which few values fit. Not: sums and products of captured ints whose values
// nobody knows, since most of them fit.
#pragma once

#include "dsl/objects/scalars.h"

namespace attnc::dsl {

/// Warns of an operation at the current place. `operands`: those of operate().
void warnOfWrap(Context& context, ir::Op op, Meeting type, llvm::ArrayRef<ir::Value> operands);
/// Warns of a known number that the dtype of the tensor it meets does not hold.
void warnOfNumber(Context& context, int64_t number, Ints ints);

} // namespace attnc::dsl
