// Lazy arrays: slices of captured tensors, and arrays computed from them. A lazy array is one element that depends on
// its indices.
//
// The element is an IR value with an iter for the index along each axis. Indexing replaces the iter by a value; a sum
// binds it. So the cost of both is independent of the number of elements.
#pragma once

#include "dsl/objects/context.h"

#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/ADT/SmallVector.h>

namespace attnc::dsl {

/// Converts between an extent, an int that is known or traced, and its code in Array::shape.
int64_t extentCode(Object extent);
Object launchExtent(int64_t code);

/// Returns the loop whose iter is the index along the axis `fromLast` axes before the last one. Its count is the
/// extent, so that arrays whose shapes broadcast have the same iters. An axis of one element has no iter and reads
/// element 0.
ir::Loop axisLoop(size_t fromLast, int64_t extent);

/// Returns a lazy array, or a tensor as a lazy array; null for tables and for objects without elements.
const Array* lazyOf(Context& context, Object arrayLike);
const Array* makeLazy(Context& context, llvm::ArrayRef<int64_t> shape, Object element);

/// Returns an array of another shape whose elements are elements of `array`. `source` maps indices along the new axes
/// to indices along the old ones.
const Array* viewLazy(Context& context, const Array& array, llvm::ArrayRef<int64_t> shape,
                      llvm::function_ref<llvm::SmallVector<Object, 4>(llvm::ArrayRef<Object>)> source);
/// Returns the element of an array whose launch extents are those of `shape`.
Object elementFor(Context& context, const Array& array, llvm::ArrayRef<int64_t> shape);
/// Returns a table as a lazy array. A traced index must be able to choose from it.
const Array* lazyTable(Context& context, const Array& table);
/// Returns the array whose elements all are this number.
const Array* filled(Context& context, llvm::ArrayRef<int64_t> shape, Object element);
/// Reports that the elements of an array are needed one by one, but it depends on a tensor that has axes left.
[[noreturn]] void failUnindexed(Context& context, const Array& array);

/// Returns all elements, row-major.
std::vector<Object> itemsOf(Context& context, const Array& array);

/// Sums along an axis, or over all elements, as a loop. Returns nullopt if a loop does not pay: few elements, or many
/// nested rounds.
std::optional<Object> sumLazy(Context& context, const Array& array, std::optional<size_t> axis);

/// Folds one axis element by element; the result is lazy. Returns nullopt if the axis is long or the only one.
std::optional<Object> foldLazy(Context& context, const Array& array, size_t axis,
                               llvm::function_ref<Object(llvm::ArrayRef<Object>)> fold);

/// Returns the module without the nodes that depend on the index of an axis. A traced mod needs none of them.
ir::Module withoutElements(const ir::Module& module);

} // namespace attnc::dsl
