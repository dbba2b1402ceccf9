// The verifier: checks the typing rules of ops.def and the structure of a module.
#pragma once

#include "ir/ir.h"

#include <optional>
#include <string>

namespace attnc::ir {

/// Returns what is wrong with the module, as one sentence without a period; nullopt if it is well-formed. A verified
/// module can be printed, hashed, interpreted and compiled.
std::optional<std::string> verify(const Module& module);

/// Checks one node that is not in the module yet; its operands must be.
std::optional<std::string> verifyNode(const Module& module, const Node& node);

/// Whether a text is a name in Python's spelling (ASCII only), as captures, dims and outputs must have.
bool isIdentifier(llvm::StringRef text);

} // namespace attnc::ir
