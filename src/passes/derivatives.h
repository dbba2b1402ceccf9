// The derivatives that ops.def lists, as products.
#pragma once

#include "passes/gradient_product.h"

#include <optional>

namespace attnc::passes {

/// What each operand of an f32 node gets of the node's gradient, by operand; nothing where none passes. Of a sum, what
/// its operand gets in each round. Precondition: gradients pass the node. `isShared`: gradients pass to more than one
/// operand, which matters where two of them are equally the least or the greatest.
llvm::SmallVector<std::optional<Product>, 3> derivatives(Products& products, ir::Value node, const Product& gradient,
                                                         bool isShared);

} // namespace attnc::passes
