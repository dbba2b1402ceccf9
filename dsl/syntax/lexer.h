// Text to tokens.
#pragma once

#include "dsl/diagnostics.h"

#include <cstdint>
#include <string>
#include <vector>

namespace attnc::dsl {

/// Punctuation is named after its sign; keywords are K followed by the word.
enum class Tok : uint8_t {
  End,
  Newline,
  Indent,
  Dedent,
  Name,
  Int,
  Float,
  String,
#define PUNCT(Name, text) Name,
#define KEYWORD(Name, text) K##Name,
#include "dsl/syntax/tokens.def"
};

struct Token {
  Tok kind = Tok::End;
  Loc loc;
  int64_t integer = 0;   ///< of Int
  double real = 0;       ///< of Float
  bool isBeyond = false; ///< whether an Int does not fit, or a Float is imaginary
  bool isLeast = false;  ///< whether an Int fits behind a minus: 2^63
};

/// Returns the tokens of a text, ending with Newline (if there is any other token) and End. Reports errors; after an
/// error the tokens must not be parsed.
std::vector<Token> lex(uint32_t source, Diagnostics& diagnostics);

} // namespace attnc::dsl
