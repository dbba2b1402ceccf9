#include "problem/safetensors_header.h"

#include "support/try.h"
#include "text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <unordered_set>

namespace attnc::cli {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxElements = int64_t(1) << 46; // keeps every product of extents and sizes inside int64
constexpr const char* kMetadata = "__metadata__";
constexpr uint64_t kMaxFileBytes = uint64_t(1) << 62;

/// Finds what a document tree does not tell: a key that stands twice, which here means a wrong tensor, and depths that
/// no header has. A callback of Json::parse() would also see them, in a time that grows with the square of the header.
class Watch final : public nlohmann::json_sax<Json> {
public:
  std::string error; ///< the first finding

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override {
    ofEntry.clear();
    return ++depth <= 2 || fail("the header is nested too deeply");
  }
  bool start_array(std::size_t) override { return ++depth <= 3 || fail("the header is nested too deeply"); }
  bool end_object() override { return --depth >= 0; }
  bool end_array() override { return --depth >= 0; }
  bool key(string_t& name) override {
    return (depth == 1 ? names : ofEntry).insert(name).second ||
           fail(fmt::format("the header has the key {} twice", inQuotes(name)));
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return fail("the header is not valid JSON");
  }

private:
  bool fail(std::string why) {
    if (error.empty()) error = std::move(why);
    return false;
  }

  int depth = 0;
  std::unordered_set<std::string> names, ofEntry; // keys of the header, and of its entry that is read
};

/// Reads the entry of a tensor. Returns what is wrong with it; empty if nothing is.
std::string readEntry(const Json& json, TensorEntry& entry) {
  if (!json.is_object()) return "its header entry is not a JSON object";
  for (const auto& [field, value] : json.items())
    if (field != "dtype" && field != "shape" && field != "data_offsets")
      return fmt::format("unknown field {} in its header entry", inQuotes(field));
  const auto isWhole = [](const Json& number) { return number.is_number_unsigned(); };
  const Json dtype = json.value("dtype", Json()), shape = json.value("shape", Json()),
             offsets = json.value("data_offsets", Json());
  if (!dtype.is_string()) return "no dtype in its header entry";
  if (!shape.is_array()) return "no shape in its header entry";
  if (!std::all_of(shape.begin(), shape.end(), isWhole)) return "an extent of its shape is not a whole number";
  if (!offsets.is_array() || offsets.size() != 2 || !std::all_of(offsets.begin(), offsets.end(), isWhole))
    return "no pair of data_offsets in its header entry";
  entry.dtype = dtype.get<std::string>();
  entry.begin = offsets[0].get<uint64_t>();
  entry.end = offsets[1].get<uint64_t>();
  if (entry.begin > entry.end) return "its data_offsets run backwards";
  if (entry.end > kMaxFileBytes) return "its data_offsets lie beyond the end of any file";
  int64_t product = 1; // of extents, each taken as at least 1, which keeps the strides in range as well
  for (const Json& number : shape) {
    const auto extent = number.get<uint64_t>();
    if (extent > uint64_t(kMaxElements / product)) {
      const std::string extents = fmt::format("{}", fmt::join(entry.shape, ","));
      return fmt::format("its shape [{}{}{},...] is too large", extents, extents.empty() ? "" : ",", extent);
    }
    product *= std::max<int64_t>(int64_t(extent), 1);
    entry.shape.push_back(int64_t(extent));
  }
  return "";
}

/// Reads the whole header. Returns what is wrong with it; empty if nothing is.
std::string readHeader(std::string_view text, std::vector<TensorEntry>& entries) {
  Watch watch;
  if (!Json::sax_parse(text.begin(), text.end(), &watch)) return watch.error;
  const Json header = Json::parse(text.begin(), text.end());
  for (const auto& [name, value] : header.items()) {
    if (name != kMetadata) {
      const std::string wrong = readEntry(value, entries.emplace_back(TensorEntry{.name = name}));
      if (!wrong.empty()) return fmt::format("tensor {}: {}", inQuotes(name), wrong);
      continue;
    }
    if (!value.is_object()) return "__metadata__ is not a JSON object";
    for (const auto& [field, of] : value.items())
      if (!of.is_string()) return fmt::format("__metadata__: {} is not a string", inQuotes(field));
  }
  return "";
}

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
  std::vector<TensorEntry> entries;
  if (const std::string wrong = readHeader(text, entries); !wrong.empty())
    return Error::environment(inQuotes(file) + ": " + wrong);
  ATTNC_TRY(checkLayout(entries, file));
  return entries;
}

} // namespace attnc::cli
