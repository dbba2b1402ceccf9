// Reads IR text (printer.h has the grammar) into a verified module.
#pragma once

#include "attnc/error.h"
#include "ir/ir.h"

#include <string_view>

namespace attnc::ir {

/// Returns the verified module. `name`: the text's file name in messages. Malformed text of any kind gives an error:
/// Blame::Mod with one diagnostic (id "ir-syntax") that says file, line and column.
Expected<Module> read(std::string_view text, std::string_view name = "<ir>");

} // namespace attnc::ir
