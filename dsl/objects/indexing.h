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

} // namespace attnc::dsl
