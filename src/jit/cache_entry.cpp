#include "jit/cache_entry.h"

#include "jit/nvrtc.h"

#include <cstring>

namespace attnc::jit {

namespace {

constexpr std::string_view kMagic = "ATTNCKRN";
constexpr size_t kPrefixBytes = 8 + 4 + 4 + 8;
constexpr size_t kChecksumBytes = 32;

size_t paddedTo8(size_t bytes) { return (bytes + 7) / 8 * 8; }

void putNumber(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i)
    out += char(value >> (8 * i));
}

void putText(std::string& out, std::string_view text) {
  putNumber(out, text.size(), 8);
  out += text;
}

uint64_t numberAt(std::string_view bytes, size_t at, int count) {
  uint64_t value = 0;
  for (int i = 0; i < count; ++i)
    value |= uint64_t(uint8_t(bytes[at + i])) << (8 * i);
  return value;
}

// Reads fields one after another; after the first one that does not fit, everything is empty and ok() is false.
class FieldReader {
public:
  explicit FieldReader(std::string_view bytes) : rest(bytes) {}
  bool ok() const { return good; }
  bool atEnd() const { return good && rest.empty(); }

  std::string_view raw(size_t bytes) {
    if (!good || bytes > rest.size()) {
      good = false;
      return {};
    }
    std::string_view field = rest.substr(0, bytes);
    rest.remove_prefix(bytes);
    return field;
  }
  uint64_t number() {
    std::string_view field = raw(8);
    return good ? numberAt(field, 0, 8) : 0;
  }
  std::string text() { return std::string(raw(number())); }

private:
  std::string_view rest;
  bool good = true;
};

std::string encodeHeader(const CacheEntry& entry) {
  const CompileResult& result = entry.result;
  std::string header(reinterpret_cast<const char*>(entry.key.bytes.data()), entry.key.bytes.size());
  for (const std::string* text : {&entry.name, &entry.entry, &entry.arch, &entry.compiler, &result.ptx, &result.log})
    putText(header, *text);
  putNumber(header, uint64_t(result.registers), 8);
  putNumber(header, uint64_t(result.spillBytes), 8);
  putNumber(header, uint64_t(result.staticSharedBytes), 8);
  putNumber(header, uint64_t(result.stackBytes), 8);
  uint64_t ms;
  static_assert(sizeof ms == sizeof result.ms);
  std::memcpy(&ms, &result.ms, sizeof ms);
  putNumber(header, ms, 8);
  putNumber(header, result.advisories.size(), 8);
  for (const std::string& line : result.advisories)
    putText(header, line);
  return header;
}

std::optional<CacheEntry> decodeHeader(std::string_view header) {
  FieldReader fields(header);
  CacheEntry entry;
  CompileResult& result = entry.result;
  std::string_view key = fields.raw(entry.key.bytes.size());
  std::memcpy(entry.key.bytes.data(), key.data(), key.size());
  for (std::string* text : {&entry.name, &entry.entry, &entry.arch, &entry.compiler, &result.ptx, &result.log})
    *text = fields.text();
  result.registers = int(fields.number());
  result.spillBytes = int(fields.number());
  result.staticSharedBytes = int64_t(fields.number());
  result.stackBytes = int64_t(fields.number());
  uint64_t ms = fields.number();
  std::memcpy(&result.ms, &ms, sizeof ms);
  for (uint64_t left = fields.number(); left > 0 && fields.ok(); --left)
    result.advisories.push_back(fields.text());
  if (!fields.atEnd()) return std::nullopt;
  return entry;
}

} // namespace

Digest cacheKey(const CompileJob& job, std::string_view compilerIdentity, int schema) {
  FieldHasher hasher;
  hasher.field("attnc kernel");
  hasher.field(uint64_t(schema));
  hasher.field(compilerIdentity);
  hasher.field(job.arch);
  hasher.field(job.entry);
  hasher.field(job.name);
  std::vector<std::string> options = nvrtcOptions(job);
  hasher.field(options.size());
  for (const std::string& option : options)
    hasher.field(option);
  hasher.field(job.headers.size());
  for (const auto& [name, text] : job.headers) {
    const auto standIn = job.keyedAs.find(name);
    hasher.field(name);
    hasher.field(standIn == job.keyedAs.end() ? "text" : "stand-in");
    hasher.field(standIn == job.keyedAs.end() ? text : standIn->second);
  }
  hasher.field(job.source);
  return hasher.finish();
}

std::string encodeEntry(const CacheEntry& entry) {
  std::string header = encodeHeader(entry);
  const std::vector<char>& cubin = entry.result.cubin;
  std::string bytes(kMagic);
  bytes.reserve(kPrefixBytes + header.size() + 8 + cubin.size() + kChecksumBytes);
  putNumber(bytes, kEntryFormat, 4);
  putNumber(bytes, header.size(), 4);
  putNumber(bytes, cubin.size(), 8);
  bytes += header;
  bytes.resize(paddedTo8(bytes.size()), '\0');
  bytes.append(cubin.data(), cubin.size());
  Digest checksum = sha256(bytes);
  bytes.append(reinterpret_cast<const char*>(checksum.bytes.data()), checksum.bytes.size());
  return bytes;
}

std::optional<CacheEntry> decodeEntry(std::string_view bytes) {
  if (bytes.size() < kPrefixBytes + kChecksumBytes || bytes.size() > kMaxEntryBytes) return std::nullopt;
  if (bytes.substr(0, kMagic.size()) != kMagic || numberAt(bytes, 8, 4) != kEntryFormat) return std::nullopt;
  size_t headerBytes = numberAt(bytes, 12, 4);
  uint64_t cubinBytes = numberAt(bytes, 16, 8);
  size_t cubinBegin = paddedTo8(kPrefixBytes + headerBytes);
  if (cubinBytes > bytes.size() || cubinBegin + cubinBytes + kChecksumBytes != bytes.size()) return std::nullopt;
  std::string_view covered = bytes.substr(0, bytes.size() - kChecksumBytes);
  Digest checksum = sha256(covered);
  if (std::memcmp(checksum.bytes.data(), bytes.data() + covered.size(), kChecksumBytes) != 0) return std::nullopt;
  auto entry = decodeHeader(bytes.substr(kPrefixBytes, headerBytes));
  if (!entry) return std::nullopt;
  entry->result.cubin.assign(covered.begin() + ptrdiff_t(cubinBegin), covered.end());
  return entry;
}

} // namespace attnc::jit
