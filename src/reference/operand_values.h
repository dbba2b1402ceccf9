// What tensors of integers may say about the rows of q, k and v.
//
// In: operands in host memory, whose shapes fit. Out: whether every row that they name exists. Not: shapes, block lists
// (BlockMask::fromLists).
#pragma once

#include "attnc/error.h"
#include "attnc/operands.h"

namespace attnc::reference {

/// Checks cumulative lengths, KV lengths, positions of queries, and the pages up to the lengths. Reads no other tensor.
/// Errors (Blame::Environment) name the tensor, the index and the value. Precondition: shapes fit, addresses are given.
Status checkValues(const Operands& operands);

} // namespace attnc::reference
