// Parts of expressions as a mod's text has them.
#pragma once

#include "ir/ir.h"
#include "support/element.h"

#include <llvm/ADT/STLFunctionalExtras.h>

#include <optional>
#include <string>

namespace attnc {

/// Returns the infix form of an operation of two operands; null for those that are written as functions.
const char* infix(ir::Op op);

/// Returns the text of a leaf: a name, or a constant as Python prints it.
std::string leafText(const ir::Module& module, ir::Value value);

/// Formats a value as Python does: True, 7, 0.5.
std::string valueText(ir::Type type, Number number);

/// Returns the index that a value wraps: where(index < 0, index + extent, index), as in Python's a[-1]; else nullopt.
std::optional<ir::Value> wrappedIndex(const ir::Module& module, ir::Value value);

/// Whether a node is a cast that changes no number.
bool isWidening(const ir::Module& module, const ir::Node& node);

/// Returns what a value is computed from, in the words of a mod: "slopes[h] * distance". `below` gives the text of the
/// operations that are not written out, so that the whole has about `width` characters.
std::string writtenOut(const ir::Module& module, ir::Value value, size_t width,
                       llvm::function_ref<std::string(ir::Value)> below);

} // namespace attnc
