// Powers of which the base or the exponent is traced.
#pragma once

#include "dsl/objects/context.h"

namespace attnc::dsl {

/// left ** right for two scalars that are not both known. An int to the power of an int is an int, as torch has it, and
/// 0 where a traced exponent is negative; an int to a known negative power is a float, as Python has it.
Object power(Context& context, Object left, Object right);

} // namespace attnc::dsl
