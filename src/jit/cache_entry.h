// The key of a compiled kernel, and the bytes of its file.
//
//   "ATTNCKRN" | u32 format | u32 header bytes | u64 cubin bytes | header | zeros to a multiple of 8 | cubin | SHA-256
//
// Numbers are little endian. The checksum covers everything before it, and the header repeats the key, so that a
// damaged, truncated, extended or renamed file is told from a good one. It finds accidents, not attackers: who can
// write the file can write its checksum (safe_files.h keeps others out). Not: where files lie.
#pragma once

#include "jit/compile_job.h"
#include "jit/sha256.h"

#include <optional>
#include <string>
#include <string_view>

namespace attnc::jit {

/// Raised when the meaning of a key or of a compile changes otherwise than through the job: old entries are then never
/// found. The layout of the file has a number of its own.
constexpr int kKeySchema = 2;
constexpr uint32_t kEntryFormat = 1;

/// Larger files are neither written nor read. A large kernel with its PTX takes below 1 MiB.
constexpr size_t kMaxEntryBytes = size_t(64) << 20;

/// Digest of everything that decides the machine code: schema, build of the compiler, options, names, all texts.
/// `schema` is a parameter for tests only.
Digest cacheKey(const CompileJob& job, std::string_view compilerIdentity, int schema = kKeySchema);

/// What a file holds. The texts beside the result are for people who list a cache.
struct CacheEntry {
  Digest key;
  std::string name;     ///< CompileJob::name
  std::string entry;    ///< CompileJob::entry
  std::string arch;     ///< CompileJob::arch
  std::string compiler; ///< identity of the compiler
  CompileResult result;
};

std::string encodeEntry(const CacheEntry& entry);

/// nullopt: not a whole, undamaged entry of this format. Never reads outside `bytes`, whatever they are.
std::optional<CacheEntry> decodeEntry(std::string_view bytes);

} // namespace attnc::jit
