#include "cache/entry.h"

#include "cache/fields.h"

#include <cstring>

namespace attnc::cache {

namespace {

constexpr std::string_view kMagic = "ATTNCKRN";
constexpr size_t kPrefixBytes = 8 + 4 + 4 + 8;

size_t paddedTo8(size_t bytes) { return (bytes + 7) / 8 * 8; }

std::string_view bytesOf(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

/// Fills in the key and texts.
bool readHead(std::string_view header, Entry& entry) {
  FieldReader fields(header);
  const std::string_view key = fields.raw(entry.key.bytes.size());
  if (key.empty()) return false;
  std::memcpy(entry.key.bytes.data(), key.data(), key.size());
  entry.name = fields.text();
  entry.compiler = fields.text();
  return fields.atEnd();
}

} // namespace

Digest keyOf(const Digest& content, std::string_view compilerIdentity) {
  FieldHasher hasher;
  hasher.field("attnc kernel");
  hasher.field(compilerIdentity);
  hasher.field(bytesOf(content));
  return hasher.finish();
}

std::string encodeEntry(const Entry& entry) {
  std::string header(bytesOf(entry.key));
  putText(header, entry.name);
  putText(header, entry.compiler);
  std::string bytes(kMagic);
  bytes.reserve(kPrefixBytes + header.size() + 8 + entry.bytes.size() + sizeof(Digest));
  putNumber(bytes, kEntryFormat, 4);
  putNumber(bytes, header.size(), 4);
  putNumber(bytes, entry.bytes.size(), 8);
  bytes += header;
  bytes.resize(paddedTo8(bytes.size()), '\0');
  bytes += entry.bytes;
  bytes += bytesOf(sha256(bytes));
  return bytes;
}

std::optional<Entry> decodeEntry(std::string_view bytes) {
  constexpr size_t kChecksumBytes = sizeof(Digest);
  if (bytes.size() < kPrefixBytes + kChecksumBytes || bytes.size() > kMaxEntryBytes) return std::nullopt;
  if (entryFormat(bytes) != kEntryFormat) return std::nullopt;
  size_t headerBytes = numberAt(bytes, 12, 4);
  uint64_t valueBytes = numberAt(bytes, 16, 8);
  size_t valueBegin = paddedTo8(kPrefixBytes + headerBytes);
  if (valueBytes > bytes.size() || valueBegin + valueBytes + kChecksumBytes != bytes.size()) return std::nullopt;
  std::string_view covered = bytes.substr(0, bytes.size() - kChecksumBytes);
  if (bytesOf(sha256(covered)) != bytes.substr(covered.size())) return std::nullopt;

  Entry entry;
  if (!readHead(bytes.substr(kPrefixBytes, headerBytes), entry)) return std::nullopt;
  entry.bytes = covered.substr(valueBegin);
  return entry;
}

std::optional<uint32_t> entryFormat(std::string_view begin) {
  if (begin.size() < kPrefixBytes || begin.substr(0, kMagic.size()) != kMagic) return std::nullopt;
  return uint32_t(numberAt(begin, 8, 4));
}

std::optional<Entry> decodeEntryHead(std::string_view begin) {
  if (entryFormat(begin) != kEntryFormat) return std::nullopt;
  const size_t headerBytes = numberAt(begin, 12, 4);
  Entry entry;
  if (headerBytes > begin.size() - kPrefixBytes) return std::nullopt;
  if (!readHead(begin.substr(kPrefixBytes, headerBytes), entry)) return std::nullopt;
  return entry;
}

} // namespace attnc::cache
