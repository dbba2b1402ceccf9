// Names of the IR that this room uses throughout.
#pragma once

#include "ir/ir.h"
#include "ir/levels.h"
#include "ir/params.h"

namespace attnc::analysis {

using ir::Level, ir::Node, ir::Op, ir::ParamKind, ir::Type, ir::Value;

} // namespace attnc::analysis
