// The key of a cached value, and the bytes of its file.
//
//   "ATTNCKRN" | u32 format | u32 header bytes | u64 value bytes | header | zeros to a multiple of 8 | value | SHA-256
//
// Numbers are little endian. The checksum covers everything before it, and the header repeats the key, so that a
// damaged, truncated, extended or renamed file is told from a good one. It finds accidents, not attackers: who can
// write the file can write its checksum (safe_files.h keeps others out). Not: where files lie, what a value means.
#pragma once

#include "cache/sha256.h"

#include <optional>
#include <string>
#include <string_view>

namespace attnc::cache {

constexpr uint32_t kEntryFormat = 2;

/// Larger files are neither written nor read. A large kernel with its PTX takes below 1 MiB.
constexpr size_t kMaxEntryBytes = size_t(64) << 20;

/// The key of the value that this build of the compiler makes of this content.
Digest keyOf(const Digest& content, std::string_view compilerIdentity);

/// What a file holds. The texts are for people who list a cache.
struct Entry {
  Digest key;
  std::string name;     ///< of the value
  std::string compiler; ///< identity of the compiler
  std::string bytes;    ///< the value
};

std::string encodeEntry(const Entry& entry);

/// Key and texts of an entry of which `begin` is the beginning, unchecked: for listings. nullopt: not such a beginning, or
/// too little of it.
std::optional<Entry> decodeEntryHead(std::string_view begin);

/// The format of an entry, whatever else is in it; nullopt: not the beginning of an entry.
std::optional<uint32_t> entryFormat(std::string_view begin);

/// nullopt: not a whole, undamaged entry of this format. Never reads outside `bytes`, whatever they are.
std::optional<Entry> decodeEntry(std::string_view bytes);

} // namespace attnc::cache
