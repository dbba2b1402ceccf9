// base[index] for sequences, arrays and captured tensors.
#pragma once

#include "dsl/objects/context.h"

namespace attnc::dsl {

Object subscript(Context& context, Object base, Object index);
/// base[index] = value: lists and dicts only.
void assignSubscript(Context& context, Object base, Object index, Object value);
/// del base[index]: lists and dicts only.
void deleteSubscript(Context& context, Object base, Object index);
/// Adds or replaces an item of a dict. Keys must be known before launch.
void setItem(Context& context, Dict& dict, Object key, Object value);
/// Returns the value of a key, or null.
Object* findItem(Context& context, Dict& dict, Object key);
/// Returns an index below `size`; a negative one counts from the end. An index out of range is an error.
size_t wrapKnownIndex(Context& context, int64_t index, size_t size);

/// Returns an index, known or traced, as an IR value that is at least 0, for an axis of this size (known or traced).
ir::Value axisIndex(Context& context, Object index, Object size);

/// Returns the captured tensor with nothing indexed.
Object wholeTensor(Context& context, unsigned number);
/// Reads the element of a tensor whose axes are all indexed.
ir::Value readElement(Context& context, const Tensor& tensor);
/// Returns the extent of axis `axis` of a captured tensor: an int, or a traced int.
Object extentOf(Context& context, unsigned tensor, unsigned axis);
/// Indexes free axis `position` of the tensor's view by a known or traced int.
const Tensor* indexAxis(Context& context, const Tensor& tensor, size_t position, Object index);

} // namespace attnc::dsl
