// The order of a module's declarations.
#pragma once

#include "ir/ir.h"

namespace attnc::passes {

/// Puts tensors, scalars and extents into the order of `like`, by name. Others follow.
void orderLike(ir::Module& module, const ir::Module& like);

} // namespace attnc::passes
