// Reads IR text (printer.h has the grammar) into a verified module.
#pragma once

#include "attnc/error.h"
#include "ir/ir.h"

#include <string_view>

namespace attnc::ir {

/// `name` is the text's file name in messages. Errors are Blame::Mod with one diagnostic (id "ir-syntax") that says
/// file, line and column. Malformed text of any kind gives an error; the result verifies.
Expected<Module> read(std::string_view text, std::string_view name = "<ir>");

} // namespace attnc::ir
