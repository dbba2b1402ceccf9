// The cache's form of a kernel: the digest of its inputs, and the result as bytes.
#pragma once

#include "attnc/kernel.h"
#include "cache/sha256.h"

#include <optional>
#include <string>
#include <string_view>

namespace attnc::jit {

/// Part of every digest. Raise it if attnc compiles an equal source to other code, or encodes results differently. Old
/// entries of the cache are then never found.
constexpr int kSourceSchema = 4;

/// Returns the digest of everything that determines the machine code except the compiler: schema, options, names, all
/// texts. Takes about 2.5 us per KiB. `schema` is a parameter only for tests.
cache::Digest contentOf(const KernelSource& source, int schema = kSourceSchema);

/// Returns a kernel as bytes, without entry, templateName, dynamicSharedBytes and fromDisk, which a call fills in.
std::string encodeResult(const CompiledKernel& result);

/// Decodes what encodeResult() wrote; nullopt for anything else. Never reads outside `bytes`, whatever they are.
std::optional<CompiledKernel> decodeResult(std::string_view bytes);

} // namespace attnc::jit
