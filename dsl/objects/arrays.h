// Arrays: tables written in the mod, and lazy rows of captured tensors (lazy.h). An operation with a table, and every
// reduction but a long sum, is unrolled element by element.
#pragma once

#include "dsl/objects/context.h"

#include <llvm/ADT/STLFunctionalExtras.h>

namespace attnc::dsl {

/// An array with all its items written out: of a lazy array, or of a tensor whose free axes have constant extents. An
/// array that has items is returned as it is.
const Array* toArray(Context& context, Object value);
const Array* makeArray(Context& context, llvm::ArrayRef<int64_t> shape, std::vector<Object> items);

/// Reports that an element is needed and the tensor has axes left.
[[noreturn]] void failUnindexed(Context& context, const Tensor& tensor);

/// Applies `scalarFn` to the elements of the operands, broadcast as torch does: numbers to any shape, extents of 1 to
/// any extent. At least one operand is array-like.
Object broadcast(Context& context, llvm::ArrayRef<Object> operands,
                 llvm::function_ref<Object(llvm::ArrayRef<Object>)> scalarFn);

/// Folds along an axis (negative counts from the end), or over all elements where there is none.
Object reduce(Context& context, Object array, std::optional<int64_t> axis,
              llvm::function_ref<Object(llvm::ArrayRef<Object>)> fold);

/// The sum of an array along an axis (negative counts from the end), or over all elements; bools count as 0 and 1.
Object total(Context& context, Object array, std::optional<int64_t> axis);

/// Extents of a tensor's free axes, or of an array: ints, and traced ints for named extents.
std::vector<Object> shapeOf(Context& context, Object arrayLike);

} // namespace attnc::dsl
