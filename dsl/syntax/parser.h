// Text to syntax tree.
#pragma once

#include "dsl/syntax/ast.h"

namespace attnc::dsl {

/// Lexes and parses the text of a source. What is wrong is reported, several findings where parsing can go on; the tree
/// is to be used only if nothing was. Throws a fatal Abort where a limit of the whole text is passed.
std::unique_ptr<Ast> parse(uint32_t source, Diagnostics& diagnostics);

} // namespace attnc::dsl
