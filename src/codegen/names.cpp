#include "codegen/names.h"

#include "ir/visits.h"

#include <llvm/ADT/StringExtras.h>
#include <llvm/Support/ConvertUTF.h>

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>

namespace attnc::codegen {
namespace {

constexpr size_t kMaxName = 48;
constexpr size_t kMaxFileName = 512;

bool isUtf8(llvm::StringRef text) {
  auto* begin = reinterpret_cast<const llvm::UTF8*>(text.data());
  return llvm::isLegalUTF8String(&begin, begin + text.size());
}

std::string floatLiteral(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return fmt::format("f32_bits({:#x}u)", bits);
  if (std::isinf(value)) return value < 0 ? "-infinity()" : "infinity()";
  std::string digits = fmt::format("{}", value);
  if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
  return digits + "f";
}

} // namespace

std::string Names::unique(llvm::StringRef prefix, llvm::StringRef name, llvm::StringRef suffix) {
  std::string base = prefix.str();
  for (char c : name.take_front(kMaxName)) base += llvm::isAlnum(c) ? c : '_';
  base += suffix;
  const auto [entry, isFree] = taken.try_emplace(base, 2);
  if (isFree) return base;
  int& next = entry->second;
  for (;;) {
    ++ir::visits;
    std::string numbered = fmt::format("{}_{}", base, next++);
    if (taken.try_emplace(numbered, 2).second) return numbered;
  }
}

std::string fileLiteral(llvm::StringRef name) {
  name = name.take_back(kMaxFileName);
  bool keepHigh = isUtf8(name);
  std::string result = "\"";
  for (unsigned char c : name) {
    if (c == '"' || c == '\\' || c == '?') result += '\\';
    result += c < 0x20 || c == 0x7f || (c >= 0x80 && !keepHigh) ? '_' : char(c);
  }
  return result + '"';
}

std::string literal(ir::Type type, int64_t bits) {
  switch (type) {
  case ir::Type::Bool: return bits ? "true" : "false";
  case ir::Type::I32: return bits == std::numeric_limits<int32_t>::min() ? "-2147483647 - 1" : std::to_string(bits);
  case ir::Type::I64:
    return bits == std::numeric_limits<int64_t>::min() ? "-9223372036854775807ll - 1" : fmt::format("{}ll", bits);
  case ir::Type::F32: return floatLiteral(std::bit_cast<float>(uint32_t(bits)));
  }
  return "?";
}

} // namespace attnc::codegen
