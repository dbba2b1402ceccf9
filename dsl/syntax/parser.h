// Text to syntax tree.
#pragma once

#include "dsl/syntax/ast.h"

namespace attnc::dsl {

/// Lexes and parses the text of a source. Reports errors, several where parsing can go on; the tree is valid only if
/// there were none. Throws a fatal Abort if the text exceeds a limit.
std::unique_ptr<Ast> parse(uint32_t source, Diagnostics& diagnostics);

} // namespace attnc::dsl
