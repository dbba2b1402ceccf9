// Arrays: tables written in the mod, and rows of captured tensors as far as they are lazy (lazy.h). What meets a
// table, and every reduction but a long sum, is unrolled element by element.
#pragma once

#include "dsl/objects/context.h"

#include <llvm/ADT/STLFunctionalExtras.h>

namespace attnc::dsl {

/// An array with all its items, of a lazy array or of a tensor whose axes left free have constant extents; an array
/// with items is itself.
const Array* toArray(Context& context, Value value);
const Array* makeArray(Context& context, llvm::ArrayRef<int64_t> shape, std::vector<Value> items);

/// Reports that an element is needed and the tensor has axes left.
[[noreturn]] void failUnindexed(Context& context, const Tensor& tensor);

/// Applies `scalarFn` to the elements of the operands, broadcast as torch does: numbers to any shape, extents of 1 to
/// any extent. At least one operand is array-like.
Value broadcast(Context& context, llvm::ArrayRef<Value> operands,
                llvm::function_ref<Value(llvm::ArrayRef<Value>)> scalarFn);

/// Folds along an axis (negative counts from the end), or over all elements where there is none.
Value reduce(Context& context, Value array, std::optional<int64_t> axis,
             llvm::function_ref<Value(llvm::ArrayRef<Value>)> fold);

/// The sum of an array along an axis (negative counts from the end), or over all elements; bools count.
Value total(Context& context, Value array, std::optional<int64_t> axis);

/// Extents of a tensor's free axes, or of an array: ints, and traced ints for named extents.
std::vector<Value> shapeOf(Context& context, Value arrayLike);

} // namespace attnc::dsl
