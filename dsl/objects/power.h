// Powers with a traced base or exponent.
#pragma once

#include "dsl/objects/context.h"

namespace attnc::dsl {

/// Returns left ** right for two scalars, at least one of them traced. As in torch, an int to the power of an int is an
/// int, and 0 if a traced exponent is negative. As in Python, an int to a known negative power is a float.
Object power(Context& context, Object left, Object right);

} // namespace attnc::dsl
