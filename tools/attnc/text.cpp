#include "text.h"

#include "support/readable.h"

#include <fmt/format.h>

#include <charconv>

namespace attnc::cli {

std::string inQuotes(std::string_view name) {
  constexpr size_t kLongest = 80;
  size_t end = 0;
  while (end < name.size() && end < kLongest) end += characterAt(name, end).bytes;
  return "'" + readable(name.substr(0, end)) + (end < name.size() ? "...'" : "'");
}

std::string shapeText(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string shapeText(const TensorView& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.shape.begin(), tensor.shape.begin() + tensor.rank, ", "));
}

bool parseInteger(std::string_view text, int64_t& value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool parseNumber(std::string_view text, double& value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

} // namespace attnc::cli
