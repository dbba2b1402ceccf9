// Arrays: tables written in the mod, and lazy rows of captured tensors (lazy.h). An operation with a table is unrolled
// element by element, and so is every reduction except a long sum.
#pragma once

#include "dsl/objects/context.h"

#include <llvm/ADT/STLFunctionalExtras.h>

namespace attnc::dsl {

/// Returns an array with all its items written out, from a lazy array or from a tensor whose free axes have constant
/// extents. Returns an array that has items as it is.
const Array* toArray(Context& context, Object value);

/// Applies `scalarFn` to the elements of the operands, broadcast as in torch: numbers to any shape, extents of 1 to any
/// extent. At least one operand is array-like.
Object broadcast(Context& context, llvm::ArrayRef<Object> operands,
                 llvm::function_ref<Object(llvm::ArrayRef<Object>)> scalarFn);

/// Folds along an axis (negative counts from the end), or over all elements if no axis is given.
Object reduce(Context& context, Object array, std::optional<int64_t> axis,
              llvm::function_ref<Object(llvm::ArrayRef<Object>)> fold);

/// Sums an array along an axis (negative counts from the end), or over all elements. A sum of ints or bools is an int64.
Object total(Context& context, Object array, std::optional<int64_t> axis);

/// Whether the elements of an array or tensor are ints. A bool is none.
bool holdsInts(Context& context, Object arrayLike);

/// Like total(), but ints keep their dtype, in which the sum wraps.
Object totalAsItems(Context& context, Object array, std::optional<int64_t> axis);

/// Returns the extents of a tensor's free axes, or of an array: ints, and traced ints for named extents.
std::vector<Object> shapeOf(Context& context, Object arrayLike);

} // namespace attnc::dsl
