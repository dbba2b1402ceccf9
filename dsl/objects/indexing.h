// base[index]: sequences, arrays and captured tensors.
#pragma once

#include "dsl/objects/context.h"

namespace attnc::dsl {

Object subscript(Context& context, Object base, Object index);
/// base[index] = value: lists and dicts only.
void assignSubscript(Context& context, Object base, Object index, Object value);
/// del base[index]: lists and dicts only.
void deleteSubscript(Context& context, Object base, Object index);
/// Adds or replaces an item of a dict. Keys are known before launch.
void setItem(Context& context, Dict& dict, Object key, Object value);
/// The value of a key; null if there is none.
Object* findItem(Context& context, Dict& dict, Object key);
/// Element `index` of an extent, counted from the end if negative; an error if outside.
size_t wrapKnownIndex(Context& context, int64_t index, size_t size);

/// A known or traced index as an IR value of an axis with this size (known or traced): at least 0.
ir::Value axisIndex(Context& context, Object index, Object size);

/// The captured tensor, nothing indexed.
Object wholeTensor(Context& context, unsigned number);
/// Reads the element of a tensor whose axes are all indexed.
ir::Value readElement(Context& context, const Tensor& tensor);
/// Extent of axis `axis` of a captured tensor: an int, or a traced int.
Object extentOf(Context& context, unsigned tensor, unsigned axis);
/// The tensor with free axis `position` of its view indexed by a known or traced int.
const Tensor* indexAxis(Context& context, const Tensor& tensor, size_t position, Object index);

} // namespace attnc::dsl
