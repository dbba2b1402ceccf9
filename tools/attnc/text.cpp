#include "text.h"

#include "support/readable.h"

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringExtras.h>

#include <charconv>

namespace attnc::cli {

std::string inQuotes(std::string_view name) {
  constexpr size_t kLongest = 80;
  size_t end = 0;
  while (end < name.size() && end < kLongest) end += characterAt(name, end).bytes;
  return "'" + readable(name.substr(0, end)) + (end < name.size() ? "...'" : "'");
}

std::string inShell(const std::string& word) {
  if (llvm::all_of(word, [](char c) { return llvm::isAlnum(c) || llvm::StringRef("_-./+:,@%=").contains(c); }))
    return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string shapeText(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string shapeText(const TensorView& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.shape.begin(), tensor.shape.begin() + tensor.rank, ", "));
}

std::string shapeText(const ProblemShape& p) {
  return fmt::format("{},{},{},{},{}", p.batch, p.qHeads, p.kvHeads, p.qLen, p.kvLen);
}

std::string extentsText(const ProblemShape& p) {
  return fmt::format("B {}, H {}, HKV {}, Q_LEN {}, KV_LEN {}", p.batch, p.qHeads, p.kvHeads, p.qLen, p.kvLen);
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
