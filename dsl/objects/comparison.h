// Comparisons, membership, and the keys of dicts.
#pragma once

#include "dsl/objects/context.h"

namespace attnc::dsl {

/// Applies ==, !=, <, <=, >, >=, is, in or one of their negations.
Object compare(Context& context, CompareOp op, Object left, Object right);
/// Returns the value of a key, or null.
Object* findItem(Context& context, Dict& dict, Object key);

} // namespace attnc::dsl
