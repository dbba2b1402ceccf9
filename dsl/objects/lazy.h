// Lazy arrays: slices of captured tensors, and what is computed from them, as one element that depends on its indices.
//
// The element is a value of the IR in which an iter stands for the index along each axis. Indexing puts a value in the
// iter's place; a sum binds it. So neither depends on how many elements there are.
#pragma once

#include "dsl/objects/context.h"

#include <llvm/ADT/STLFunctionalExtras.h>

namespace attnc::dsl {

/// The loop whose iter is the index along the axis `fromLast` axes before the last one. Its count is the extent, so
/// that arrays whose shapes broadcast have the same iters; an axis of one element has none, and reads element 0.
ir::Loop axisLoop(size_t fromLast, int64_t extent);

/// A lazy array, or a tensor with constant extents as one; null for tables and for what has no elements.
const Array* lazyOf(Context& context, Object arrayLike);
const Array* makeLazy(Context& context, llvm::ArrayRef<int64_t> shape, Object element);

/// A lazy array indexed along its first axis by a known or a traced int: a number if that was the only axis.
Object indexLazy(Context& context, const Array& array, Object index);
/// Elements start, start + step, ... along the first axis.
const Array* sliceLazy(Context& context, const Array& array, int64_t start, int64_t step, int64_t count);
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
