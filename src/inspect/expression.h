// Parts of expressions as a mod's text has them.
#pragma once

#include "ir/ir.h"
#include "support/element.h"

#include <string>

namespace attnc {

/// Returns the infix form of an operation of two operands; null for those that are written as functions.
const char* infix(ir::Op op);

/// Formats a value as Python does: True, 7, 0.5.
std::string valueText(ir::Type type, Number number);

} // namespace attnc
