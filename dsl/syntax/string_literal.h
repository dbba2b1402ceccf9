// In: a String token. Out: the characters that it stands for, by Python's escapes, in UTF-8.
// Not: names of characters (`\N{...}`), and surrogates, which UTF-8 cannot encode.
#pragma once

#include <string>
#include <string_view>

namespace attnc::dsl {

struct StringLiteral {
  std::string prefix; ///< the letters before the quote, in lower case
  std::string text;
  const char* unsupported = nullptr; ///< the part of the literal that attnc does not read, or null
};

StringLiteral readString(std::string_view token);

} // namespace attnc::dsl
