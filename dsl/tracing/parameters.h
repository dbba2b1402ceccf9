// What is known of the parameters of a callable.
#pragma once

#include "dsl/objects/object.h"

#include <optional>

namespace attnc::dsl {

/// Returns the number of parameters that a call must give by position: those that have no default and are not bound
/// yet.
std::optional<size_t> requiredArguments(Object callable);

/// Whether the last two parameters are named as in mods: q..., and k....
bool hasModNames(Object callable);

/// Returns the name of the first parameter that a call gives; empty if it is unknown.
llvm::StringRef firstParameter(Object callable);

/// Returns the name of the last parameter that a call must give; empty if it is unknown.
llvm::StringRef lastParameter(Object callable);

/// Returns the most arguments that a function of the text takes by position; for another callable, any number.
size_t mostArguments(Object callable);

} // namespace attnc::dsl
