#include "text.h"

#include <fmt/format.h>

#include <charconv>

namespace attnc::cli {

std::string inQuotes(std::string_view name) {
  constexpr size_t kLongest = 80;
  std::string result = "'";
  for (char byte : name.substr(0, kLongest)) {
    auto code = static_cast<unsigned char>(byte);
    if (code < 0x20 || code == 0x7f)
      result += fmt::format("\\x{:02x}", code);
    else
      result += byte;
  }
  return result + (name.size() > kLongest ? "...'" : "'");
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
  return error == std::errc() && end == text.data() + text.size() && value == value;
}

} // namespace attnc::cli
