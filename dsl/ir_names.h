// Names of the IR that the front end uses throughout.
#pragma once

#include "ir/ops.h"

namespace attnc::dsl {

using ir::Op, ir::Type;

} // namespace attnc::dsl
