#include "problem/safetensors_header.h"

#include "support/try.h"
#include "text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <unordered_set>

namespace attnc::cli {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxElements = int64_t(1) << 46; // keeps every product of extents and sizes inside int64
constexpr uint64_t kMaxFileBytes = uint64_t(1) << 62;

/// Handles the parser's events (SAX). A document tree would silently keep one of two equal keys, which here means a
/// wrong tensor, and would need a second walk. A callback returns false after it has recorded an error.
class HeaderEvents final : public nlohmann::json_sax<Json> {
public:
  std::vector<TensorEntry> entries;
  std::string error;

  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_float(number_float_t, const string_t&) override { return other(); }
  bool binary(binary_t&) override { return other(); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place == Place::Shape) return extent(value);
    if (place != Place::Offsets) return other();
    offsets.push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (place == Place::Metadata) return true;
    if (place != Place::Entry || field != "dtype") return other();
    dtype = value;
    return true;
  }

  bool start_object(std::size_t) override {
    switch (place) {
    case Place::Outside: place = Place::Header; return true;
    case Place::Header: return name == kMetadata ? startMetadata() : startEntry();
    case Place::Metadata: return other();
    case Place::Entry:
    case Place::Shape:
    case Place::Offsets: break;
    }
    return fail("the header is nested too deeply");
  }

  bool end_object() override {
    bool isEntry = place == Place::Entry;
    place = place == Place::Header ? Place::Outside : Place::Header;
    return isEntry ? finishEntry() : true;
  }

  bool start_array(std::size_t) override {
    if (place == Place::Shape || place == Place::Offsets) return fail("the header is nested too deeply");
    if (place != Place::Entry || field == "dtype") return other();
    place = field == "shape" ? Place::Shape : Place::Offsets;
    (place == Place::Shape ? hasShape : hasOffsets) = true;
    return true;
  }

  bool end_array() override {
    place = Place::Entry;
    return true;
  }

  bool key(string_t& text) override {
    if (place == Place::Header) {
      name = text;
      return names.insert(text).second || twice(text);
    }
    if (place == Place::Metadata) {
      field = text;
      return metadata.insert(text).second || twice(text);
    }
    field = text;
    if (field != "dtype" && field != "shape" && field != "data_offsets")
      return failAt("unknown field {} in its header entry", inQuotes(field));
    if (std::find(fields.begin(), fields.end(), field) != fields.end()) return twice(text);
    fields.push_back(field);
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return fail("the header is not valid JSON");
  }

private:
  enum class Place { Outside, Header, Metadata, Entry, Shape, Offsets };
  static constexpr const char* kMetadata = "__metadata__";

  template <class... Args> bool fail(fmt::format_string<Args...> text, Args&&... args) {
    if (error.empty()) error = fmt::format(text, std::forward<Args>(args)...);
    return false;
  }
  template <class... Args> bool failAt(fmt::format_string<Args...> text, Args&&... args) {
    return fail("tensor {}: {}", inQuotes(name), fmt::format(text, std::forward<Args>(args)...));
  }
  bool twice(const std::string& text) { return fail("the header has the key {} twice", inQuotes(text)); }

  bool startMetadata() {
    place = Place::Metadata;
    return true;
  }

  bool startEntry() {
    place = Place::Entry;
    fields.clear();
    dtype.reset();
    shape.clear();
    offsets.clear();
    hasShape = hasOffsets = false;
    product = 1;
    return true;
  }

  /// Skips a value of the wrong type. Its field counts as missing.
  bool other() {
    switch (place) {
    case Place::Outside: return fail("no safetensors file: the header is not a JSON object");
    case Place::Header:
      return name == kMetadata ? fail("__metadata__ is not a JSON object")
                               : failAt("its header entry is not a JSON object");
    case Place::Metadata: return fail("__metadata__: {} is not a string", inQuotes(field));
    case Place::Entry: return field == "dtype" ? failAt("no dtype in its header entry") : missing(field);
    case Place::Shape: return failAt("an extent of its shape is not a whole number");
    case Place::Offsets: return missing("data_offsets");
    }
    return false;
  }

  bool missing(const std::string& what) {
    return what == "shape" ? failAt("no shape in its header entry")
                           : failAt("no pair of data_offsets in its header entry");
  }

  bool extent(uint64_t value) {
    if (value > uint64_t(kMaxElements / product)) {
      std::string extents = fmt::format("{}", fmt::join(shape, ","));
      return failAt("its shape [{}{}{},...] is too large", extents, extents.empty() ? "" : ",", value);
    }
    product *= std::max<int64_t>(int64_t(value), 1); // keeps the strides in range as well
    shape.push_back(int64_t(value));
    return true;
  }

  bool finishEntry() {
    if (!dtype) return failAt("no dtype in its header entry");
    if (!hasShape) return missing("shape");
    if (!hasOffsets || offsets.size() != 2) return missing("data_offsets");
    if (offsets[0] > offsets[1]) return failAt("its data_offsets run backwards");
    if (offsets[1] > kMaxFileBytes) return failAt("its data_offsets lie beyond the end of any file");
    entries.push_back({name, std::move(*dtype), std::move(shape), offsets[0], offsets[1]});
    return true;
  }

  Place place = Place::Outside;
  std::unordered_set<std::string> names, metadata;
  std::string name, field; // name of the tensor, and field of its entry or the metadata
  // The entry being read.
  std::vector<std::string> fields;
  std::optional<std::string> dtype;
  std::vector<int64_t> shape;
  std::vector<uint64_t> offsets;
  bool hasShape = false, hasOffsets = false;
  int64_t product = 1; // product of extents, each taken as at least 1
};

/// Sorts the entries by position and checks them: the format has neither holes nor overlaps.
Status checkLayout(std::vector<TensorEntry>& entries, const std::string& file) {
  std::stable_sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t position = 0;
  for (const TensorEntry& entry : entries) {
    std::string where = fmt::format("{}: tensor {}: ", inQuotes(file), inQuotes(entry.name));
    if (entry.begin < position) return Error::environment(where + "its data overlaps the tensor before it");
    if (entry.begin > position)
      return Error::environment(where + fmt::format("{} unused bytes before its data", entry.begin - position));
    position = entry.end;
  }
  return {};
}

} // namespace

Expected<std::vector<TensorEntry>> parseSafetensorsHeader(std::string_view text, const std::string& file) {
  HeaderEvents events;
  if (!Json::sax_parse(text.begin(), text.end(), &events))
    return Error::environment(inQuotes(file) + ": " + events.error);
  ATTNC_TRY(checkLayout(events.entries, file));
  return std::move(events.entries);
}

} // namespace attnc::cli
