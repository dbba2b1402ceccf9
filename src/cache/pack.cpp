#include "cache/pack.h"

#include "cache/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>

namespace attnc::cache {

namespace {

constexpr std::string_view kPackMagic = "ATTNCPAK";
constexpr uint32_t kPackFormat = 1;
constexpr size_t kPackPrefix = 8 + 4 + 4 + 8;
constexpr uint64_t kMostHeadBytes = 64 << 20;
constexpr char kPackAgain[] = "make it anew with `attnc pack`";

std::string_view rawDigest(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

Digest digestIn(FieldReader& fields) {
  Digest digest;
  const std::string_view raw = fields.raw(digest.bytes.size());
  if (!raw.empty()) std::memcpy(digest.bytes.data(), raw.data(), raw.size());
  return digest;
}

/// Reads `count` bytes at an offset. Empty if they cannot all be read.
std::string bytesAt(FileOps& ops, const Fd& fd, uint64_t offset, uint64_t count) {
  std::string bytes(count, '\0');
  for (uint64_t done = 0; done < count;) {
    const int64_t more = ops.readAt(fd.get(), bytes.data() + done, count - done, int64_t(offset + done));
    if (more <= 0) return {};
    done += uint64_t(more);
  }
  return bytes;
}

} // namespace

std::string encodePack(const std::string& maker, std::vector<PackedValue> values) {
  const auto content = [](const PackedValue& a, const PackedValue& b) { return a.content < b.content; };
  std::stable_sort(values.begin(), values.end(), content);
  const auto same = [](const PackedValue& a, const PackedValue& b) { return a.content == b.content; };
  values.erase(std::unique(values.begin(), values.end(), same), values.end());
  std::string head;
  putText(head, maker);
  putNumber(head, values.size());
  uint64_t offset = 0;
  for (const PackedValue& value : values) {
    head += rawDigest(value.content);
    putText(head, value.name);
    putNumber(head, offset);
    putNumber(head, value.bytes.size());
    head += rawDigest(sha256(value.bytes));
    offset += value.bytes.size();
  }
  std::string bytes(kPackMagic);
  putNumber(bytes, kPackFormat, 4);
  putNumber(bytes, 0, 4);
  putNumber(bytes, head.size());
  bytes += head;
  bytes += rawDigest(sha256(bytes));
  for (const PackedValue& value : values) bytes += value.bytes;
  return bytes;
}

Expected<std::shared_ptr<const Pack>> Pack::open(const std::string& path, std::shared_ptr<FileOps> ops) {
  const auto wrong = [&](const std::string& what) {
    return Error::environment(fmt::format("the pack {} {}", path, what), kPackAgain);
  };
  std::shared_ptr<Pack> pack(new Pack(ops));
  pack->file = path;
  pack->fd = Fd(*ops, ops->open(AT_FDCWD, path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY, 0));
  struct stat& status = pack->opened;
  const int error = pack->fd ? ops->status(pack->fd.get(), status) : pack->fd.get();
  if (error < 0)
    return Error::environment(fmt::format("cannot open the pack {}: {}", path, std::strerror(-error)),
                              "ATTNC_PACK and the options of the compiler name packs");
  if (!S_ISREG(status.st_mode)) return wrong("is no file");
  const auto fileBytes = uint64_t(status.st_size);
  const std::string prefix = bytesAt(*ops, pack->fd, 0, std::min<uint64_t>(kPackPrefix, fileBytes));
  if (prefix.substr(0, kPackMagic.size()) != kPackMagic) return wrong("is no pack");
  if (prefix.size() < kPackPrefix) return wrong("is damaged: it is cut off");
  if (const uint64_t format = numberAt(prefix, 8, 4); format != kPackFormat)
    return wrong(fmt::format("is of another version of attnc: its format is {}, expected {}", format, kPackFormat));
  const uint64_t headBytes = numberAt(prefix, 16, 8);
  if (headBytes > kMostHeadBytes || kPackPrefix + headBytes + sizeof(Digest) > fileBytes)
    return wrong("is damaged: it is cut off");
  const std::string begin = bytesAt(*ops, pack->fd, 0, kPackPrefix + headBytes + sizeof(Digest));
  if (begin.empty()) return wrong("cannot be read");
  const std::string_view covered = std::string_view(begin).substr(0, kPackPrefix + headBytes);
  if (rawDigest(sha256(covered)) != std::string_view(begin).substr(covered.size()))
    return wrong("is damaged: the checksum of its head is another");
  if (!pack->readHead(covered.substr(kPackPrefix), begin.size(), fileBytes))
    return wrong(fmt::format("is damaged: it has {} bytes, which are not those that its head tells", fileBytes));
  return std::shared_ptr<const Pack>(std::move(pack));
}

// Reads the rows and checks that they fit the file: none reaches outside, and nothing follows the last value.
bool Pack::readHead(std::string_view head, uint64_t valuesBegin, uint64_t fileBytes) {
  FieldReader fields(head);
  madeBy = fields.text();
  uint64_t end = valuesBegin;
  for (uint64_t left = fields.number(); left > 0 && fields.ok(); --left) {
    const Digest content = digestIn(fields);
    Row row;
    row.name = fields.text();
    row.offset = fields.number();
    row.bytes = fields.number();
    row.sum = digestIn(fields);
    if (!fields.ok() || row.offset != end - valuesBegin || row.bytes > fileBytes - end) return false;
    row.offset = end;
    end += row.bytes;
    index.emplace(content, std::move(row));
  }
  return fields.atEnd() && end == fileBytes;
}

std::optional<std::string> Pack::read(const Row& row) const {
  std::string bytes = bytesAt(*ops, fd, row.offset, row.bytes);
  if (bytes.size() != row.bytes || sha256(bytes) != row.sum) return std::nullopt;
  return bytes;
}

} // namespace attnc::cache
