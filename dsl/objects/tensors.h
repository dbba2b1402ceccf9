// Captured tensors: views with some of their axes indexed. A tensor becomes a Load once all axes are indexed.
#pragma once

#include "dsl/objects/context.h"

namespace attnc::dsl {

/// Returns an index below `size`; a negative one counts from the end. An index out of range is an error.
size_t wrapKnownIndex(Context& context, int64_t index, size_t size);

/// Returns an index, known or traced, as an IR value that is at least 0, for an axis of this size (known or traced).
ir::Value axisIndex(Context& context, Object index, Object size);

/// Returns the captured tensor with nothing indexed.
Object wholeTensor(Context& context, unsigned number);
/// Reads the element of a tensor whose axes are all indexed.
Object readElement(Context& context, const Tensor& tensor);
/// Returns the extent of axis `axis` of a captured tensor: an int, or a traced int.
Object extentOf(Context& context, unsigned tensor, unsigned axis);
/// Indexes free axis `position` of the tensor's view by a known or traced int.
const Tensor* indexAxis(Context& context, const Tensor& tensor, size_t position, Object index);
/// Reports that an element is needed and the tensor has axes left.
[[noreturn]] void failUnindexed(Context& context, const Tensor& tensor);

/// Converts a value to a scalar: reads an indexed tensor, returns a number as it is. For anything else, reports an
/// error that names `what`.
Object scalar(Context& context, Object value, const char* what);
/// Reads an indexed tensor. Returns anything else unchanged.
Object decay(Context& context, Object value);

} // namespace attnc::dsl
