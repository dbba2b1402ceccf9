// A kernel as the cache keeps it: the digest of what it is compiled from, and the result as bytes.
#pragma once

#include "cache/sha256.h"
#include "jit/compile_job.h"

#include <optional>
#include <string>
#include <string_view>

namespace attnc::jit {

/// Part of every digest. Raise it when attnc compiles an equal job to other code, or encodes results in another way:
/// old entries of the cache are then never found.
constexpr int kJobSchema = 3;

/// Digest of everything but the compiler that decides the machine code: schema, options, names, all texts. Takes about
/// 2.5 us a KiB. `schema` is a parameter for tests only.
cache::Digest contentOf(const CompileJob& job, int schema = kJobSchema);

std::string encodeResult(const CompileResult& result);

/// nullopt: not what encodeResult() wrote. Never reads outside `bytes`, whatever they are.
std::optional<CompileResult> decodeResult(std::string_view bytes);

} // namespace attnc::jit
