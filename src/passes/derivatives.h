// The derivatives that ops.def lists, as products.
#pragma once

#include "passes/gradient_product.h"

#include <optional>

namespace attnc::passes {

/// Returns each operand's share of the gradient of an f32 node, by operand; nullopt if no gradient passes. For a sum it
/// is the operand's share in each round. Precondition: gradients pass the node.
llvm::SmallVector<std::optional<Product>, 3> derivatives(Products& products, ir::Value node, const Product& gradient);

} // namespace attnc::passes
