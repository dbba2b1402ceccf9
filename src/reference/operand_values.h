// What the values of operands may say: which rows of q, k and v there are, and what these are multiplied by.
//
// In: operands in host memory, whose shapes fit. Out: whether every row that they name exists, rows that are appended
// have one place each, and scales are numbers. Not: shapes, block lists (BlockMask::fromLists).
#pragma once

#include "attnc/error.h"
#include "attnc/operands.h"

namespace attnc::reference {

/// Checks cumulative lengths, KV lengths, positions of queries, and up to the lengths pages and scales. Reads no other
/// tensor. Errors (Blame::Environment) name the tensor, the index and the value. Precondition: shapes fit, addresses
/// are given.
Status checkValues(const Operands& operands);

} // namespace attnc::reference
