#include "dsl/syntax/string_literal.h"

#include <llvm/ADT/StringExtras.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/Support/ConvertUTF.h>

namespace attnc::dsl {

namespace {

class Reader {
public:
  explicit Reader(llvm::StringRef body) : rest(body) {}

  StringLiteral read(bool isRaw) {
    while (!rest.empty()) {
      if (rest.consume_front("\r\n") || rest.consume_front("\r"))
        result.text += '\n';
      else if (!isRaw && rest.size() > 1 && rest.consume_front("\\"))
        escape();
      else
        result.text += take();
    }
    return std::move(result);
  }

private:
  char take() {
    const char c = rest.front();
    rest = rest.drop_front();
    return c;
  }

  void escape() {
    constexpr llvm::StringLiteral kNames = "abfnrtv\\'\"", kCharacters = "\a\b\f\n\r\t\v\\'\"";
    if (rest.consume_front("\r\n") || rest.consume_front("\r") || rest.consume_front("\n")) return;
    const char c = take();
    if (size_t name = kNames.find(c); name != llvm::StringRef::npos)
      result.text += kCharacters[name];
    else if (c >= '0' && c <= '7')
      octal(c);
    else if (c == 'x' || c == 'u' || c == 'U')
      hexadecimal(c == 'x' ? 2 : c == 'u' ? 4 : 8);
    else if (c == 'N')
      result.unsupported = "the escape `\\N{...}`";
    else
      (result.text += '\\') += c; // Python keeps the backslash
  }

  void octal(char first) {
    unsigned value = unsigned(first - '0');
    for (int digits = 1; digits < 3 && !rest.empty() && rest[0] >= '0' && rest[0] <= '7'; ++digits)
      value = value * 8 + unsigned(take() - '0');
    add(value);
  }

  void hexadecimal(size_t digits) {
    unsigned value = 0;
    if (rest.size() < digits || rest.take_front(digits).getAsInteger(16, value)) {
      result.unsupported = "an escape with too few hexadecimal digits";
      return;
    }
    rest = rest.drop_front(digits);
    add(value);
  }

  void add(unsigned codePoint) {
    char bytes[UNI_MAX_UTF8_BYTES_PER_CODE_POINT], *end = bytes;
    if (llvm::ConvertCodePointToUTF8(codePoint, end))
      result.text.append(bytes, end);
    else
      result.unsupported = "an escape that is no character of Unicode";
  }

  llvm::StringRef rest;
  StringLiteral result;
};

} // namespace

StringLiteral readString(std::string_view token) {
  const size_t quote = token.find_first_of("\"'");
  const llvm::StringRef text = token;
  const bool isTriple = text.size() >= quote + 6 && text[quote + 1] == text[quote] && text[quote + 2] == text[quote];
  const std::string prefix = text.take_front(quote).lower();
  const size_t width = isTriple ? 3 : 1;
  StringLiteral result =
      Reader(text.drop_front(quote + width).drop_back(width)).read(prefix.find('r') != std::string::npos);
  result.prefix = prefix;
  return result;
}

} // namespace attnc::dsl
