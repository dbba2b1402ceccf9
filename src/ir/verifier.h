// The verifier: the typing rules of ops.def and the shape of a module, checked.
#pragma once

#include "ir/ir.h"

#include <optional>
#include <string>

namespace attnc::ir {

/// What is wrong with the module, as one sentence without a period; nothing if it is well-formed. A module that
/// verifies can be printed, hashed, interpreted and compiled.
std::optional<std::string> verify(const Module& module);

/// The same for one node that is not in the module yet; its operands are.
std::optional<std::string> verifyNode(const Module& module, const Node& node);

/// Whether a text is a name as Python spells it (ASCII only): captures, dims and outputs have such names.
bool isIdentifier(llvm::StringRef text);

} // namespace attnc::ir
