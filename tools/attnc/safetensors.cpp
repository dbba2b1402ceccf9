#include "safetensors.h"

#include "output_file.h"
#include "text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

namespace attnc::cli {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 16 << 20;     // about 100000 tensors; bounds what parsing takes
constexpr int64_t kMaxElements = int64_t(1) << 46; // keeps every product of extents and sizes inside int64
constexpr size_t kPrefixBytes = 8;

struct DTypeSpelling {
  DType dtype;
  const char* text;
};
constexpr DTypeSpelling kSpellings[] = {
    {DType::Bool, "BOOL"}, {DType::U8, "U8"},   {DType::I8, "I8"},     {DType::I16, "I16"}, {DType::I32, "I32"},
    {DType::I64, "I64"},   {DType::F16, "F16"}, {DType::BF16, "BF16"}, {DType::F32, "F32"},
};

const char* spelling(DType dtype) {
  for (const DTypeSpelling& row : kSpellings)
    if (row.dtype == dtype) return row.text;
  return "?";
}

std::optional<DType> dtypeOf(std::string_view text) {
  for (const DTypeSpelling& row : kSpellings)
    if (row.text == text) return row.dtype;
  return std::nullopt;
}

/// A tensor as the header announces it.
struct Entry {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0; // bytes of the data section
};

/// Reads one stream, with the file's name at hand for messages.
class Reader {
public:
  Reader(std::istream& stream, uint64_t size, const std::string& name) : stream(stream), size(size), file(name) {}

  Expected<TensorMap> read() {
    auto header = readHeader();
    if (!header) return std::move(header).error();
    auto entries = readEntries(*header);
    if (!entries) return std::move(entries).error();
    if (auto status = checkLayout(*entries); !status) return status.error();
    return readData(*entries);
  }

private:
  template <class... Args> Error fail(fmt::format_string<Args...> text, Args&&... args) const {
    return Error::environment(inQuotes(file) + ": " + fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  Error failAt(const std::string& tensor, fmt::format_string<Args...> text, Args&&... args) const {
    return fail("tensor {}: {}", inQuotes(tensor), fmt::format(text, std::forward<Args>(args)...));
  }

  bool readBytes(char* target, uint64_t count) {
    stream.read(target, std::streamsize(count));
    return uint64_t(stream.gcount()) == count;
  }

  Expected<Json> readHeader() {
    unsigned char prefix[kPrefixBytes];
    if (size < kPrefixBytes || !readBytes(reinterpret_cast<char*>(prefix), kPrefixBytes))
      return fail("no safetensors file: it ends inside the header length");
    for (size_t i = 0; i < kPrefixBytes; ++i) headerBytes |= uint64_t(prefix[i]) << (8 * i);
    if (headerBytes > kMaxHeaderBytes)
      return fail("no safetensors file: a header of {} bytes is beyond the limit of {}", headerBytes, kMaxHeaderBytes);
    if (headerBytes > size - kPrefixBytes)
      return fail("truncated: the header has {} bytes, the file only {} after the header length", headerBytes,
                  size - kPrefixBytes);
    std::string text(headerBytes, '\0');
    if (!readBytes(text.data(), headerBytes)) return fail("cannot be read");
    if (text.empty() || text[0] != '{') return fail("no safetensors file: the header is not a JSON object");
    return parseHeader(text);
  }

  /// A JSON parser keeps one of two equal keys without a word; here that would be a wrong tensor.
  Expected<Json> parseHeader(const std::string& text) const {
    std::vector<std::set<std::string>> keys;
    std::optional<std::string> duplicate;
    bool tooDeep = false;
    auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
      constexpr int kDeepest = 3; // header, tensor, shape
      tooDeep |= depth > kDeepest;
      if (tooDeep) return false;
      if (event == Json::parse_event_t::object_start) keys.emplace_back();
      if (event == Json::parse_event_t::object_end) keys.pop_back();
      if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second)
        duplicate = parsed.get<std::string>();
      return true;
    };
    Json header = Json::parse(text, watch, /*allow_exceptions=*/false);
    if (tooDeep) return fail("the header is nested too deeply");
    if (header.is_discarded() || !header.is_object()) return fail("the header is not valid JSON");
    if (duplicate) return fail("the header has the key {} twice", inQuotes(*duplicate));
    return header;
  }

  Expected<std::vector<Entry>> readEntries(const Json& header) const {
    std::vector<Entry> entries;
    for (const auto& [name, fields] : header.items()) {
      if (name == "__metadata__") {
        if (auto status = checkMetadata(fields); !status) return status.error();
        continue;
      }
      auto entry = readEntry(name, fields);
      if (!entry) return std::move(entry).error();
      entries.push_back(std::move(*entry));
    }
    return entries;
  }

  Status checkMetadata(const Json& fields) const {
    if (!fields.is_object()) return fail("__metadata__ is not a JSON object");
    for (const auto& [key, value] : fields.items())
      if (!value.is_string()) return fail("__metadata__: {} is not a string", inQuotes(key));
    return {};
  }

  Expected<Entry> readEntry(const std::string& name, const Json& fields) const {
    Entry entry;
    entry.name = name;
    if (!fields.is_object()) return failAt(name, "its header entry is not a JSON object");
    for (const auto& [key, value] : fields.items())
      if (key != "dtype" && key != "shape" && key != "data_offsets")
        return failAt(name, "unknown field {} in its header entry", inQuotes(key));

    if (!fields.contains("dtype") || !fields["dtype"].is_string()) return failAt(name, "no dtype in its header entry");
    const auto& dtypeText = fields["dtype"].get_ref<const std::string&>();
    auto dtype = dtypeOf(dtypeText);
    if (!dtype)
      return failAt(name, "dtype {} is not supported (F32, F16, BF16, I64, I32, I16, I8, U8, BOOL are)",
                    inQuotes(dtypeText));
    entry.dtype = *dtype;
    if (auto status = readShape(entry, fields); !status) return status.error();
    if (auto status = readOffsets(entry, fields); !status) return status.error();
    return entry;
  }

  Status readShape(Entry& entry, const Json& fields) const {
    if (!fields.contains("shape") || !fields["shape"].is_array())
      return failAt(entry.name, "no shape in its header entry");
    const Json& shape = fields["shape"];
    if (shape.size() > size_t(TensorView::kMaxRank))
      return failAt(entry.name, "{} dimensions, at most {} are supported", shape.size(), TensorView::kMaxRank);
    int64_t product = 1; // of extents taken as at least 1, so that strides fit as well
    for (const Json& extent : shape) {
      if (!extent.is_number_unsigned()) return failAt(entry.name, "an extent of its shape is not a whole number");
      uint64_t value = extent.get<uint64_t>();
      if (value > uint64_t(kMaxElements / product))
        return failAt(entry.name, "its shape {} is too large", shape.dump());
      product *= std::max<int64_t>(int64_t(value), 1);
      entry.shape.push_back(int64_t(value));
    }
    return {};
  }

  Status readOffsets(Entry& entry, const Json& fields) const {
    const auto offsets = fields.find("data_offsets");
    bool valid = offsets != fields.end() && offsets->is_array() && offsets->size() == 2 &&
                 (*offsets)[0].is_number_unsigned() && (*offsets)[1].is_number_unsigned();
    if (!valid) return failAt(entry.name, "no pair of data_offsets in its header entry");
    entry.begin = (*offsets)[0].get<uint64_t>();
    entry.end = (*offsets)[1].get<uint64_t>();
    if (entry.begin > entry.end) return failAt(entry.name, "its data_offsets run backwards");
    uint64_t needed = uint64_t(dtypeBytes(entry.dtype));
    for (int64_t extent : entry.shape) needed *= uint64_t(extent);
    if (entry.end - entry.begin != needed)
      return failAt(entry.name, "{} bytes of data, but {} of shape {} take {}", entry.end - entry.begin,
                    spelling(entry.dtype), shapeText(entry.shape), needed);
    return {};
  }

  /// The format has neither holes nor overlaps, and nothing after the last tensor.
  Status checkLayout(std::vector<Entry>& entries) const {
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
    uint64_t available = size - kPrefixBytes - headerBytes;
    uint64_t position = 0;
    for (const Entry& entry : entries) {
      if (entry.begin < position) return failAt(entry.name, "its data overlaps the tensor before it");
      if (entry.begin > position) return failAt(entry.name, "{} unused bytes before its data", entry.begin - position);
      if (entry.end > available)
        return failAt(entry.name, "truncated: its data end at byte {} of the data section, which has {}", entry.end,
                      available);
      position = entry.end;
    }
    if (position != available) return fail("{} bytes after the last tensor", available - position);
    return {};
  }

  Expected<TensorMap> readData(const std::vector<Entry>& entries) {
    TensorMap tensors;
    for (const Entry& entry : entries) {
      HostTensor& tensor = tensors[entry.name];
      tensor = HostTensor::make(entry.dtype, entry.shape);
      if (!readBytes(tensor.bytes.data(), tensor.bytes.size())) return failAt(entry.name, "cannot be read");
      if (entry.dtype != DType::Bool) continue;
      for (char byte : tensor.bytes)
        if (byte != 0 && byte != 1) return failAt(entry.name, "a BOOL that is neither 0 nor 1");
    }
    return tensors;
  }

  std::istream& stream;
  uint64_t size;
  const std::string& file;
  uint64_t headerBytes = 0;
};

/// Names in the order of their data: wide types first, so that every tensor is aligned to its elements.
std::vector<const TensorMap::value_type*> dataOrder(const TensorMap& tensors) {
  std::vector<const TensorMap::value_type*> order;
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return dtypeBytes(a->second.dtype) > dtypeBytes(b->second.dtype);
  });
  return order;
}

} // namespace

HostTensor HostTensor::make(DType dtype, std::vector<int64_t> shape) {
  HostTensor tensor{dtype, std::move(shape), {}};
  tensor.bytes.resize(size_t(tensor.elements() * dtypeBytes(dtype)));
  return tensor;
}

int64_t HostTensor::elements() const {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
}

TensorView HostTensor::view() const {
  TensorView view;
  view.data = const_cast<char*>(bytes.data());
  view.dtype = dtype;
  view.rank = int(shape.size());
  int64_t step = 1;
  for (int axis = view.rank - 1; axis >= 0; --axis) {
    view.shape[axis] = shape[axis];
    view.stride[axis] = step;
    step *= shape[axis];
  }
  return view;
}

Expected<TensorMap> readSafetensors(const std::string& path) {
  std::error_code failure;
  bool regular = std::filesystem::is_regular_file(path, failure);
  uint64_t size = regular ? std::filesystem::file_size(path, failure) : 0;
  if (failure) return Error::environment(fmt::format("cannot read {}: {}", inQuotes(path), failure.message()));
  if (!regular) return Error::environment(fmt::format("cannot read {}: it is not a regular file", inQuotes(path)));
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return Error::environment(fmt::format("cannot read {}: it cannot be opened", inQuotes(path)));
  return readSafetensors(stream, size, path);
}

Expected<TensorMap> readSafetensors(std::istream& stream, uint64_t size, const std::string& name) {
  return Reader(stream, size, name).read();
}

Status writeSafetensors(const std::string& path, const TensorMap& tensors,
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

} // namespace attnc::cli
