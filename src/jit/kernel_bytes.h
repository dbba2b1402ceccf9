// What the cache knows of a kernel: the digest of what it is made from, and the bytes of what came out.
#pragma once

#include "cache/sha256.h"
#include "jit/compile_job.h"

#include <optional>
#include <string>
#include <string_view>

namespace attnc::jit {

/// Raised when the meaning of a job, or the bytes of a result, change otherwise than through the job: old entries of
/// the cache are then never found.
constexpr int kJobSchema = 3;

/// Digest of everything but the compiler that decides the machine code: schema, options, names, all texts. Takes about
/// 2.5 us a KiB. `schema` is a parameter for tests only.
cache::Digest contentOf(const CompileJob& job, int schema = kJobSchema);

std::string encodeResult(const CompileResult& result);

/// nullopt: not what encodeResult() wrote. Never reads outside `bytes`, whatever they are.
std::optional<CompileResult> decodeResult(std::string_view bytes);

} // namespace attnc::jit
