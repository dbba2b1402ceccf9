// The key of a cached value, and the bytes of its file.
//
//   "ATTNCKRN" | u32 format | u32 header bytes | u64 value bytes | header | zeros to a multiple of 8 | value | SHA-256
//
// Numbers are little endian. The checksum covers everything before it, and the header repeats the key. So damaged,
// truncated, extended or renamed files are detected. This finds accidents, not attackers: whoever can write the file
// can write its checksum (safe_files.h keeps others out). Not: where files lie, what a value means.
#pragma once

#include "cache/sha256.h"

#include <optional>
#include <string>
#include <string_view>

namespace attnc::cache {

constexpr uint32_t kEntryFormat = 2;

/// Larger files are neither written nor read. A large kernel with its PTX takes less than 1 MiB.
constexpr size_t kMaxEntryBytes = size_t(64) << 20;

/// Returns the key of the value that this build of the compiler makes of this content.
Digest keyOf(const Digest& content, std::string_view compilerIdentity);

/// The contents of a file. The texts are for people who list a cache.
struct Entry {
  Digest key;
  std::string name;     ///< of the value
  std::string compiler; ///< identity of the compiler
  std::string bytes;    ///< the value
};

std::string encodeEntry(const Entry& entry);

/// Decodes the key and texts from the beginning of an entry, unchecked: for listings. nullopt: not an entry, or too
/// short.
std::optional<Entry> decodeEntryHead(std::string_view begin);

/// Returns the format of an entry, whatever its contents; nullopt: not the beginning of an entry.
std::optional<uint32_t> entryFormat(std::string_view begin);

/// Decodes an entry; nullopt: not a whole, undamaged entry of this format. Never reads outside `bytes`, whatever they
/// are.
std::optional<Entry> decodeEntry(std::string_view bytes);

} // namespace attnc::cache
