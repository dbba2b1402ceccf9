// Lazy arrays: slices of captured tensors, and what is computed from them, as one element that depends on its indices.
//
// The element is a value of the IR in which an iter stands for the index along each axis. Indexing puts a value in the
// iter's place; a sum binds it. So neither depends on how many elements there are.
#pragma once

#include "dsl/objects/context.h"

#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/ADT/SmallVector.h>

namespace attnc::dsl {

/// An extent as Array::shape holds it, of an int that is known or traced; and the int.
int64_t extentCode(Object extent);
Object launchExtent(int64_t code);

/// The loop whose iter is the index along the axis `fromLast` axes before the last one. Its count is the extent, so
/// that arrays whose shapes broadcast have the same iters; an axis of one element has none, and reads element 0.
ir::Loop axisLoop(size_t fromLast, int64_t extent);

/// A lazy array, or a tensor as one; null for tables and for what has no elements.
const Array* lazyOf(Context& context, Object arrayLike);
const Array* makeLazy(Context& context, llvm::ArrayRef<int64_t> shape, Object element);

/// An array of another shape whose element at some indices is that of `array` at others: `source` gets the indices
/// along the new axes and gives those along the old ones.
const Array* viewLazy(Context& context, const Array& array, llvm::ArrayRef<int64_t> shape,
                      llvm::function_ref<llvm::SmallVector<Object, 4>(llvm::ArrayRef<Object>)> source);
/// The element of an array where extents that are known at launch only are those of `shape`.
Object elementFor(Context& context, const Array& array, llvm::ArrayRef<int64_t> shape);
/// A table as a lazy array; it must be one that a traced index may choose from.
const Array* lazyTable(Context& context, const Array& table);
/// The array of which each element is this number.
const Array* filled(Context& context, llvm::ArrayRef<int64_t> shape, Object element);
/// Reports that the elements of an array are needed one by one, and it depends on a tensor that has axes left.
[[noreturn]] void failUnindexed(Context& context, const Array& array);

/// All elements, row-major.
std::vector<Object> itemsOf(Context& context, const Array& array);

/// The sum along an axis, or over all elements, as a loop. nullopt if a loop does not pay: few elements, or many nested
/// rounds.
std::optional<Object> sumLazy(Context& context, const Array& array, std::optional<size_t> axis);

/// An array with one axis folded element by element, still lazy. nullopt if the axis is long or the only one.
std::optional<Object> foldLazy(Context& context, const Array& array, size_t axis,
                               llvm::function_ref<Object(llvm::ArrayRef<Object>)> fold);

/// The module without the nodes that depend on the index of an axis: no mod needs them once it is traced.
ir::Module withoutElements(const ir::Module& module);

} // namespace attnc::dsl
