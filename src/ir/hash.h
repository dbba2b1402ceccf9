// The identity of a module, used by the cache and Mod::hash().
#pragma once

#include "ir/ir.h"

#include <string>

namespace attnc::ir {

/// Returns the bytes that are hashed: a version, the captures, the outputs, and the nodes that these need, in the order
/// of a depth-first walk from each output in turn. Every field is length-prefixed or of fixed width, little endian.
/// Excluded: names, source lines, the source's file name, dead nodes. Captures and free dims are represented by their
/// place in the declarations (unused ones count). A kernel takes its arguments in that order, so equal bytes mean
/// interchangeable kernels. The pass order-captures makes the place independent of the mod's text.
std::string canonicalBytes(const Module& module);

/// Returns the SHA-256 of canonicalBytes() as 64 hexadecimal digits.
std::string canonicalHash(const Module& module);

} // namespace attnc::ir
