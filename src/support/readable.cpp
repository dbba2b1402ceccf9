#include "support/readable.h"

#include <fmt/format.h>
#include <llvm/Support/ConvertUTF.h>

#include <algorithm>

namespace attnc {
namespace {

struct Decoded {
  size_t bytes = 1;
  llvm::UTF32 code = 0;
  bool isValid = false;
};

Decoded decode(std::string_view text, size_t at) {
  const auto* begin = reinterpret_cast<const llvm::UTF8*>(text.data()) + at;
  const size_t length = std::min<size_t>(llvm::getNumBytesForUTF8(*begin), text.size() - at);
  const llvm::UTF8* next = begin;
  Decoded decoded;
  decoded.isValid =
      llvm::convertUTF8Sequence(&next, begin + length, &decoded.code, llvm::strictConversion) == llvm::conversionOK;
  if (decoded.isValid) decoded.bytes = size_t(next - begin);
  return decoded;
}

bool isControl(llvm::UTF32 code) {
  constexpr std::pair<llvm::UTF32, llvm::UTF32> kControls[] = {
      {0, 0x1f},        {0x7f, 0x9f},                       // C0, DEL, C1
      {0x61c, 0x61c},   {0x200e, 0x200f}, {0x2028, 0x202e}, // direction marks, ends of lines and paragraphs
      {0x2066, 0x2069}, {0xfeff, 0xfeff}};                  // isolates, the byte order mark
  return std::any_of(std::begin(kControls), std::end(kControls),
                     [&](auto range) { return code >= range.first && code <= range.second; });
}

std::string escaped(std::string_view text, bool keepsLines) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const Decoded character = decode(text, at);
    if (!character.isValid)
      result += "\xef\xbf\xbd";
    else if (!isControl(character.code) || (keepsLines && character.code == '\n'))
      result += text.substr(at, character.bytes);
    else
      result +=
          character.code < 0x100 ? fmt::format("\\x{:02x}", character.code) : fmt::format("\\u{:04x}", character.code);
    at += character.bytes;
  }
  return result;
}

} // namespace

Character characterAt(std::string_view text, size_t at) {
  const Decoded decoded = decode(text, at);
  return {decoded.bytes, decoded.isValid && !isControl(decoded.code)};
}

std::string readable(std::string_view text) { return escaped(text, false); }
std::string readableLines(std::string_view text) { return escaped(text, true); }

} // namespace attnc
