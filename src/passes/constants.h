// Operations on constants, computed at compile time.
#pragma once

#include "ir/ir.h"

#include <optional>

namespace attnc::passes {

/// Returns the constant result of an operation on constants; nullopt if an operand is not constant, or `node` is a leaf
/// or a load. f32 results are double results rounded to single: for + - * / sqrt that is the IEEE result.
std::optional<ir::Value> foldNode(ir::Module& module, const ir::Node& node);

} // namespace attnc::passes
