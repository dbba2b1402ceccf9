// The identity of a module: what the cache and Mod::hash() go by.
#pragma once

#include "ir/ir.h"

#include <string>

namespace attnc::ir {

/// The bytes that are hashed: a version, the captures, the outputs, and the nodes that these need in the order of a
/// depth-first walk from one output after the other. Every field is length-prefixed or of fixed width, little endian.
/// Names, source lines, the source's file name and dead nodes do not occur. Captures and free dims stand for themselves
/// by their place in the declarations (unused ones count too): that is the order in which a kernel takes its arguments,
/// so equal bytes mean interchangeable kernels. The pass order-captures makes the place independent of the mod's text.
std::string canonicalBytes(const Module& module);

/// SHA-256 of canonicalBytes(), 64 hexadecimal digits.
std::string canonicalHash(const Module& module);

} // namespace attnc::ir
