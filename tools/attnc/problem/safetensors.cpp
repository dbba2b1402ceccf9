#include "problem/safetensors.h"

#include "output_file.h"
#include "problem/safetensors_header.h"
#include "support/readable.h"
#include "support/try.h"
#include "text.h"
#include "usage.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>

namespace attnc::cli {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000; // the limit of the format's own reader; bounds the cost of parsing
constexpr size_t kPrefixBytes = 8;

struct DTypeSpelling {
  DType dtype;
  const char* text;
};
constexpr DTypeSpelling kSpellings[] = {
    {DType::Bool, "BOOL"}, {DType::U8, "U8"},   {DType::I8, "I8"},     {DType::I16, "I16"}, {DType::I32, "I32"},
    {DType::I64, "I64"},   {DType::F16, "F16"}, {DType::BF16, "BF16"}, {DType::F32, "F32"}, {DType::E4M3, "F8_E4M3"},
};

const char* spelling(DType dtype) {
  for (const DTypeSpelling& row : kSpellings)
    if (row.dtype == dtype) return row.text;
  return "?";
}

std::optional<DType> spelledDType(std::string_view text) {
  for (const DTypeSpelling& row : kSpellings)
    if (row.text == text) return row.dtype;
  return std::nullopt;
}

/// Reads a stream from front to back. Knows the file's name for messages.
class Reader {
public:
  Reader(std::istream& stream, std::optional<uint64_t> size, const std::string& name, const Wanted& wanted)
      : stream(stream), size(size), file(name), wanted(wanted) {}

  Expected<FileTensors> read() {
    ATTNC_TRY_AS(header, readHeader());
    ATTNC_TRY_AS(entries, parseSafetensorsHeader(*header, file));
    for (const TensorEntry& entry : *entries) ATTNC_TRY(checkEntry(entry));
    ATTNC_TRY(checkEnd(*entries));
    FileTensors result;
    for (const TensorEntry& entry : *entries) {
      result.names.push_back(entry.name);
      ATTNC_TRY(readTensor(entry, result.tensors));
    }
    if (!size && stream.peek() != std::char_traits<char>::eof()) return fail("bytes after the last tensor");
    return result;
  }

private:
  template <class... Args> Error fail(fmt::format_string<Args...> text, Args&&... args) const {
    return Error::environment(inQuotes(file) + ": " + fmt::format(text, std::forward<Args>(args)...));
  }
  Error failFormat(const std::string& why) const {
    Error error = fail("no safetensors file: {}", why);
    error.remedy = "in Python: from safetensors.torch import save_file; save_file({\"q\": q, \"k\": k, \"v\": v}, "
                   "\"qkv.safetensors\")";
    return error;
  }
  template <class... Args>
  Error failAt(const std::string& tensor, fmt::format_string<Args...> text, Args&&... args) const {
    return fail("tensor {}: {}", inQuotes(tensor), fmt::format(text, std::forward<Args>(args)...));
  }

  /// Appends up to `count` bytes. Returns how many the stream had. It reads in parts, because the header of a stream of
  /// unknown size may announce more than it has.
  template <class Bytes> uint64_t readBytes(Bytes& target, uint64_t count) {
    constexpr uint64_t kPart = 16 << 20;
    if (skipped > 0 && !stream.seekg(std::streamoff(skipped), std::ios::cur)) return 0;
    skipped = 0;
    for (uint64_t left = count; left > 0;) {
      uint64_t part = size ? left : std::min(left, kPart);
      size_t have = target.size();
      target.resize(have + part);
      stream.read(target.data() + have, std::streamsize(part));
      left -= part;
      if (uint64_t(stream.gcount()) != part) return count - left - part + uint64_t(stream.gcount());
    }
    return count;
  }

  /// Skips bytes. In a file, whose size has been checked, one seek before the next read skips them all: a file may have
  /// 100000 tensors, and each seek is a system call.
  uint64_t skipBytes(uint64_t count) {
    if (size) return skipped += count, count;
    stream.ignore(std::streamsize(count));
    return uint64_t(stream.gcount());
  }

  Expected<std::string> readHeader() {
    std::string prefix, text;
    if (readBytes(prefix, kPrefixBytes) != kPrefixBytes) return failFormat("it ends inside the header length");
    uint64_t headerBytes = 0;
    for (size_t i = 0; i < kPrefixBytes; ++i) headerBytes |= uint64_t(uint8_t(prefix[i])) << (8 * i);
    if (headerBytes > kMaxHeaderBytes)
      return failFormat(fmt::format("a header of {} bytes is beyond the limit of {}", headerBytes, kMaxHeaderBytes));
    uint64_t available = size ? std::min(headerBytes, *size - kPrefixBytes) : headerBytes;
    if (available == headerBytes) available = readBytes(text, headerBytes);
    if (available != headerBytes)
      return fail("truncated: the header has {} bytes, the file only {} after the header length", headerBytes,
                  available);
    if (text.empty() || text[0] != '{') return failFormat("the header is not a JSON object");
    if (size) dataBytes = *size - kPrefixBytes - headerBytes;
    return text;
  }

  /// Checks that the byte count matches dtype and shape; and, for a wanted tensor, that attnc can use it.
  Status checkEntry(const TensorEntry& entry) const {
    auto dtype = spelledDType(entry.dtype);
    if (dtype) {
      uint64_t needed = uint64_t(dtypeBytes(*dtype));
      for (int64_t extent : entry.shape) needed *= uint64_t(extent);
      if (entry.end - entry.begin != needed)
        return failAt(entry.name, "{} bytes of data, but {} of shape {} take {}", entry.end - entry.begin, entry.dtype,
                      shapeText(entry.shape), needed);
    }
    if (wanted(entry.name) == Want::Nothing) return {};
    if (!dtype) {
      Error error =
          failAt(entry.name, "dtype {} is not supported (F32, F16, BF16, F8_E4M3, I64, I32, I16, I8, U8, BOOL are)",
                 inQuotes(entry.dtype));
      const bool isFloat = entry.dtype.starts_with("F");
      error.remedy = fmt::format("save {}.{}", readable(entry.name), isFloat ? "float()" : "int()");
      return error;
    }
    if (entry.shape.size() > size_t(TensorView::kMaxRank))
      return failAt(entry.name, "{} dimensions, at most {} are supported", entry.shape.size(), TensorView::kMaxRank);
    return {};
  }

  Error truncated(const TensorEntry& entry, uint64_t available) const {
    return failAt(entry.name, "truncated: its data end at byte {} of the data section, which has {}", entry.end,
                  available);
  }

  Status checkEnd(const std::vector<TensorEntry>& entries) const {
    if (!dataBytes) return {};
    for (const TensorEntry& entry : entries)
      if (entry.end > *dataBytes) return truncated(entry, *dataBytes);
    uint64_t end = entries.empty() ? 0 : entries.back().end;
    return end == *dataBytes ? Status() : fail("{} bytes after the last tensor", *dataBytes - end);
  }

  Status readTensor(const TensorEntry& entry, NamedTensors& tensors) {
    const uint64_t count = entry.end - entry.begin;
    const Want want = wanted(entry.name);
    HostTensor tensor;
    uint64_t found = want == Want::Data ? readBytes(tensor.bytes, count) : skipBytes(count);
    if (found != count) return truncated(entry, entry.begin + found);
    if (want == Want::Nothing) return {};
    tensor.dtype = *spelledDType(entry.dtype);
    tensor.shape = entry.shape;
    if (tensor.dtype == DType::Bool)
      for (char byte : tensor.bytes)
        if (byte != 0 && byte != 1) return failAt(entry.name, "a BOOL that is neither 0 nor 1");
    tensors[entry.name] = std::move(tensor);
    return {};
  }

  std::istream& stream;
  std::optional<uint64_t> size;
  const std::string& file;
  const Wanted& wanted;
  std::optional<uint64_t> dataBytes; // size of the data section, if known
  uint64_t skipped = 0;              // bytes still to be skipped
};

/// Returns the names in the order of their data: wide types first, so that every tensor is aligned to its elements.
std::vector<const NamedTensors::value_type*> dataOrder(const NamedTensors& tensors) {
  std::vector<const NamedTensors::value_type*> order;
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return dtypeBytes(a->second.dtype) > dtypeBytes(b->second.dtype);
  });
  return order;
}

} // namespace

Expected<FileTensors> readSafetensors(const std::string& path, const Wanted& wanted) {
  auto fail = [&](const std::string& reason) {
    return Error::environment(fmt::format("cannot read {}: {}", inQuotes(path), reason), fileRepair(path));
  };
  if (path == "-") return readSafetensors(std::cin, std::nullopt, "<stdin>", wanted);
  std::error_code failure;
  auto status = std::filesystem::status(path, failure);
  std::optional<uint64_t> size;
  if (std::filesystem::is_regular_file(status)) size = std::filesystem::file_size(path, failure);
  if (failure) return fail(failure.message());
  if (std::filesystem::is_directory(status)) return fail("it is a directory");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return fail("it cannot be opened");
  return readSafetensors(stream, size, path, wanted);
}

Expected<FileTensors> readSafetensors(const std::string& path, const std::map<std::string, Want>& wants) {
  return readSafetensors(path, [&](const std::string& name) {
    const auto found = wants.find(name);
    return found == wants.end() ? Want::Nothing : found->second;
  });
}

Expected<FileTensors> readSafetensors(std::istream& stream, std::optional<uint64_t> size, const std::string& name,
                                      const Wanted& wanted) {
  return Reader(stream, size, name, wanted).read();
}

Status writeSafetensors(const std::string& path, const NamedTensors& tensors,
                        const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t position = 0;
  const auto order = dataOrder(tensors);
  for (const auto* named : order) {
    const auto& [name, tensor] = *named;
    uint64_t end = position + tensor.bytes.size();
    header[name] = {{"dtype", spelling(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {position, end}}};
    position = end;
  }
  std::string text = header.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string prefix;
  for (size_t i = 0; i < kPrefixBytes; ++i) prefix += char(text.size() >> (8 * i) & 0xff);

  std::vector<std::string_view> pieces{prefix, text};
  for (const auto* named : order) pieces.emplace_back(named->second.bytes.data(), named->second.bytes.size());
  return writeWholeFile(path, pieces);
}

std::string namesText(const std::vector<std::string>& names) {
  constexpr size_t kMost = 12;
  if (names.empty()) return "the file has no tensors";
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) text += (i ? ", " : "the file has ") + inQuotes(names[i]);
  return names.size() > kMost ? text + fmt::format(" and {} more", names.size() - kMost) : text;
}

} // namespace attnc::cli
