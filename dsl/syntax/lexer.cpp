// In: the text of a mod, any bytes. Out: tokens, with Python's rules for indentation and joined lines.
// Not: the meaning of names. Strings are only checked for their end; readString reads them.
#include "dsl/syntax/lexer.h"

#include "dsl/limits.h"

#include <llvm/ADT/StringExtras.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/ADT/StringSwitch.h>
#include <llvm/Support/ConvertUTF.h>

#include <optional>

namespace attnc::dsl {

namespace {

struct Fixed {
  std::string_view text;
  Tok kind;
};
constexpr Fixed kPuncts[] = {
#define PUNCT(Name, text) {text, Tok::Name},
#include "dsl/syntax/tokens.def"
};

bool isNameStart(char c) { return llvm::isAlpha(c) || c == '_'; }
bool isNameChar(char c) { return llvm::isAlnum(c) || c == '_'; }

/// Non-ASCII letters that names may contain: Latin, Greek, Cyrillic and the scripts of East Asia.
bool isLetter(uint32_t c) {
  constexpr std::pair<uint32_t, uint32_t> kLetters[] = {
      {0xb5, 0xb5},     {0xc0, 0xd6},     {0xd8, 0xf6},     {0xf8, 0x2af},    {0x370, 0x37d},
      {0x386, 0x386},   {0x388, 0x481},   {0x48a, 0x52f},   {0x1d62, 0x1d6a}, {0x1e00, 0x1fbc},
      {0x2080, 0x209c}, {0x3041, 0x30ff}, {0x3400, 0x9fff}, {0xac00, 0xd7a3}};
  return llvm::any_of(kLetters, [&](auto range) { return c >= range.first && c <= range.second; });
}

Tok keywordOrName(llvm::StringRef text) {
  return llvm::StringSwitch<Tok>(text)
#define KEYWORD(Name, text) .Case(text, Tok::K##Name)
#include "dsl/syntax/tokens.def"
      .Default(Tok::Name);
}

class Lexer {
public:
  Lexer(uint32_t source, Diagnostics& diagnostics)
      : diagnostics(diagnostics), source(source), text(diagnostics.source(source).text) {}

  std::vector<Token> run() {
    checkBytes();
    if (text.substr(0, 3) == "\xef\xbb\xbf") at = 3;
    while (at < text.size()) line();
    for (auto [open, begin] : brackets) diagnostics.report(here(begin, 1), diag::unclosedBracket, Text(&open, 1));
    if (!tokens.empty() && tokens.back().kind != Tok::Newline) push(Tok::Newline, text.size());
    for (; indents.size() > 1; indents.pop_back()) push(Tok::Dedent, text.size());
    push(Tok::End, text.size());
    return std::move(tokens);
  }

private:
  Loc here(size_t begin, size_t length) const { return {uint32_t(begin), uint32_t(begin + length), source}; }

  char peek(size_t ahead = 0) const { return at + ahead < text.size() ? text[at + ahead] : '\0'; }

  void push(Tok kind, size_t begin) {
    if (tokens.size() >= kMaxTokens) {
      diagnostics.report(here(begin, 1), diag::tooManyTokens, Count(kMaxTokens));
      throw Abort{true};
    }
    tokens.push_back({kind, here(begin, at > begin ? at - begin : 0)});
  }

  void checkBytes() {
    if (text.size() > kMaxTextBytes) {
      diagnostics.report(here(0, 0), diag::textTooLong, Count(text.size()), Count(kMaxTextBytes));
      throw Abort{true};
    }
    const auto* bytes = reinterpret_cast<const llvm::UTF8*>(text.data());
    for (size_t i = 0; i < text.size();) {
      if (text[i] == '\0') {
        diagnostics.report(here(i, 1), diag::nulByte);
        throw Abort{true};
      }
      size_t length = llvm::getNumBytesForUTF8(bytes[i]);
      if (i + length > text.size() || !llvm::isLegalUTF8Sequence(bytes + i, bytes + i + length)) {
        diagnostics.report(here(i, 1), diag::invalidUtf8, llvm::utohexstr(bytes[i], /*LowerCase=*/true));
        throw Abort{true};
      }
      i += length;
    }
  }

  bool atLineEnd() const { return at >= text.size() || text[at] == '\n' || text[at] == '\r'; }

  void skipLineEnd() {
    if (peek() == '\r') ++at;
    if (peek() == '\n' && (at == 0 || text[at - 1] == '\r' || text[at] == '\n')) ++at;
  }

  void skipComment() {
    if (peek() == '#')
      while (!atLineEnd()) ++at;
  }

  /// Lexes one line of the text, starting at its indentation.
  void line() {
    if (brackets.empty() && !joined) {
      if (!indentation()) return;
    }
    joined = false;
    while (!atLineEnd()) token();
    size_t end = at;
    skipLineEnd();
    if (brackets.empty() && !joined && !tokens.empty() && tokens.back().kind != Tok::Newline) {
      push(Tok::Newline, end);
      tokens.back().loc.end = tokens.back().loc.begin;
    }
  }

  /// Measures the indentation and emits Indent and Dedent. Returns false for a line without code, which is consumed. A
  /// tab advances to the next multiple of 8. As in Python, lines whose order depends on that width are an error.
  bool indentation() {
    Width width;
    size_t begin = at;
    for (; peek() == ' ' || peek() == '\t' || peek() == '\f'; ++at) {
      if (peek() == '\f')
        width = {};
      else
        width =
            peek() == ' ' ? Width{width.wide + 1, width.narrow + 1} : Width{(width.wide / 8 + 1) * 8, width.narrow + 1};
    }
    skipComment();
    if (atLineEnd()) {
      skipLineEnd();
      return false;
    }
    if (width.wide > indents.back().wide) {
      if (width.narrow <= indents.back().narrow) diagnostics.report(here(begin, at - begin), diag::mixedIndentation);
      indents.push_back(width);
      push(Tok::Indent, at);
      return true;
    }
    for (; width.wide < indents.back().wide; indents.pop_back()) push(Tok::Dedent, at);
    if (width.wide != indents.back().wide)
      diagnostics.report(here(at, 1), diag::unexpectedDedent);
    else if (width.narrow != indents.back().narrow)
      diagnostics.report(here(begin, at - begin), diag::mixedIndentation);
    return true;
  }

  void token() {
    char c = peek();
    if (c == ' ' || c == '\t' || c == '\f') {
      ++at;
    } else if (c == '#') {
      skipComment();
    } else if (c == '\\') {
      continuation();
    } else if (llvm::isDigit(c) || (c == '.' && llvm::isDigit(peek(1)))) {
      number();
    } else if (isNameStart(c) || letterLength() > 0) {
      name();
    } else if (c == '"' || c == '\'') {
      string(at);
    } else {
      punctuation();
    }
  }

  void continuation() {
    size_t begin = at++;
    if (!atLineEnd() || at >= text.size()) {
      diagnostics.report(here(begin, 1), diag::strayBackslash);
      return;
    }
    joined = true;
  }

  /// Returns the byte count of the non-ASCII letter at this position, or 0.
  size_t letterLength() const {
    if (at >= text.size() || !(text[at] & 0x80)) return 0;
    const auto* begin = reinterpret_cast<const llvm::UTF8*>(text.data() + at);
    const auto* next = begin;
    llvm::UTF32 letter = 0;
    if (llvm::convertUTF8Sequence(&next, begin + std::min<size_t>(4, text.size() - at), &letter,
                                  llvm::strictConversion) != llvm::conversionOK)
      return 0;
    return isLetter(letter) ? size_t(next - begin) : 0;
  }

  void name() {
    size_t begin = at;
    while (isNameChar(peek()) || letterLength() > 0) at += std::max<size_t>(letterLength(), 1);
    if ((peek() == '"' || peek() == '\'') && at - begin <= 2) return string(begin);
    push(keywordOrName(llvm::StringRef(text.data() + begin, at - begin)), begin);
  }

  void string(size_t begin) {
    char quote = peek();
    bool triple = peek(1) == quote && peek(2) == quote;
    at += triple ? 3 : 1;
    const bool isFormat = llvm::StringRef(text)
                              .slice(begin, at)
                              .take_until([](char c) { return c == '"' || c == '\''; })
                              .find_insensitive("f") != llvm::StringRef::npos;
    while (at < text.size()) {
      if (isFormat && peek() == '{' && skipField(triple)) continue;
      if (peek() == '\\') {
        at = std::min(at + (peek(1) == '\r' && peek(2) == '\n' ? 3 : 2), text.size());
      } else if (triple ? peek() == quote && peek(1) == quote && peek(2) == quote : peek() == quote) {
        at += triple ? 3 : 1;
        push(Tok::String, begin);
        return;
      } else if (!triple && atLineEnd()) {
        break;
      } else {
        ++at;
      }
    }
    diagnostics.report(here(begin, 1), diag::unclosedString);
  }

  /// Skips {expression} of a format string. Strings in it may have any quotes. Returns false if it is not closed on the
  /// line.
  bool skipField(bool acrossLines) {
    if (peek(1) == '{') {
      at += 2;
      return true;
    }
    size_t end = at + 1;
    for (size_t open = 1; open; ++end) {
      if (end >= text.size() || (!acrossLines && (text[end] == '\n' || text[end] == '\r'))) return false;
      if (text[end] == '{') ++open;
      if (text[end] == '}') --open;
      if (text[end] != '"' && text[end] != '\'') continue;
      size_t close = text.find_first_of(text[end] == '"' ? "\"\n" : "'\n", end + 1);
      if (close == std::string_view::npos || text[close] == '\n') return false;
      end = close;
    }
    at = end;
    return true;
  }

  void punctuation() {
    for (const Fixed& fixed : kPuncts) {
      if (text.substr(at, fixed.text.size()) != fixed.text) continue;
      size_t begin = at;
      at += fixed.text.size();
      push(fixed.kind, begin);
      bracket(begin);
      return;
    }
    size_t length = llvm::getNumBytesForUTF8(llvm::UTF8(text[at]));
    const std::string_view character = text.substr(at, length);
    const char* hint = "names and operators are ASCII";
    for (auto [wrong, right] : {std::pair("!", "write `~(condition)`, or `!=`"),
                                {"\u2265", "write `>=`"},
                                {"\u2264", "write `<=`"},
                                {"\u2260", "write `!=`"},
                                {"\u2212", "write `-`"},
                                {"\u00d7", "write `*`"},
                                {"?", "write `a if condition else b`, or `torch.where`"},
                                {"$", "leave it out"},
                                {"`", "leave it out, or write quotes"}})
      if (character == wrong) hint = right;
    diagnostics.report(here(at, length), diag::unexpectedCharacter, character, hint);
    at += length;
  }

  /// Tracks open brackets, inside which lines are joined.
  void bracket(size_t begin) {
    char c = text[begin];
    if (at - begin != 1) return;
    if (c == '(' || c == '[' || c == '{') brackets.emplace_back(c, begin);
    if (c != ')' && c != ']' && c != '}') return;
    char open = c == ')' ? '(' : c == ']' ? '[' : '{';
    if (brackets.empty() || brackets.back().first != open)
      diagnostics.report(here(begin, 1), diag::unmatchedBracket, Text(&c, 1));
    if (!brackets.empty()) brackets.pop_back();
  }

  // Numbers ---------------------------------------------------------------------------------------------------------

  /// Reads digits of a base with single underscores between them. Returns false if there are no digits or an underscore
  /// is not between two digits.
  bool digits(std::string& out, bool (*isDigit)(char)) {
    bool ok = isDigit(peek());
    while (isDigit(peek()) || peek() == '_') {
      if (peek() == '_')
        ok = ok && isDigit(peek(1));
      else
        out += peek();
      ++at;
    }
    return ok;
  }

  void number() {
    size_t begin = at;
    std::string spelled;
    unsigned base = 10;
    bool isFloat = false, ok = true;
    char kind = llvm::toLower(peek(1));
    if (peek() == '0' && (kind == 'x' || kind == 'o' || kind == 'b')) {
      base = kind == 'x' ? 16 : kind == 'o' ? 8 : 2;
      at += 2;
      if (peek() == '_') ++at;
      ok = digits(
          spelled, base == 16  ? +[](char c) { return llvm::isHexDigit(c); }
                   : base == 8 ? +[](char c) { return c >= '0' && c <= '7'; }
                               : +[](char c) { return c == '0' || c == '1'; });
    } else {
      ok = decimal(spelled, isFloat);
    }
    const bool isImaginary = base == 10 && llvm::toLower(peek()) == 'j' && !isNameChar(peek(1));
    if (isImaginary) ++at;
    if (isNameChar(peek())) {
      ok = false;
      while (isNameChar(peek())) ++at;
    }
    finishNumber(begin, spelled, base, isFloat || isImaginary, ok);
    tokens.back().isBeyond |= isImaginary;
  }

  bool decimal(std::string& spelled, bool& isFloat) {
    auto isDecimal = +[](char c) { return llvm::isDigit(c); };
    bool ok = peek() == '.' || digits(spelled, isDecimal);
    if (peek() == '.') {
      isFloat = true;
      spelled += '.';
      ++at;
      if (llvm::isDigit(peek())) ok = digits(spelled, isDecimal) && ok;
    }
    bool isSigned = peek(1) == '+' || peek(1) == '-';
    if (llvm::toLower(peek()) == 'e' && llvm::isDigit(peek(isSigned ? 2 : 1))) {
      isFloat = true;
      spelled += 'e';
      if (isSigned) spelled += peek(1);
      at += isSigned ? 2 : 1;
      ok = digits(spelled, isDecimal) && ok;
    }
    bool leadingZero =
        !isFloat && spelled.size() > 1 && spelled[0] == '0' && spelled.find_first_not_of('0') != std::string::npos;
    return ok && !leadingZero;
  }

  void finishNumber(size_t begin, llvm::StringRef spelled, unsigned base, bool isFloat, bool ok) {
    Loc loc = here(begin, at - begin);
    push(isFloat ? Tok::Float : Tok::Int, begin);
    if (spelled.size() > kMaxNumberChars)
      diagnostics.report(loc, diag::numberTooLong, Count(kMaxNumberChars));
    else if (!ok)
      diagnostics.report(loc, diag::badNumber, text.substr(begin, at - begin));
    else if (isFloat)
      ok = !spelled.getAsDouble(tokens.back().real);
    else if (uint64_t value = 0; spelled.getAsInteger(base, value) || value > INT64_MAX)
      tokens.back().isBeyond = true, tokens.back().isLeast = value == 1ull << 63;
    else
      tokens.back().integer = int64_t(value);
  }

  struct Width {
    size_t wide = 0, narrow = 0; // columns with tabs to 8, and with tabs of 1
  };

  Diagnostics& diagnostics;
  uint32_t source;
  std::string_view text;
  size_t at = 0;
  bool joined = false; // whether the line before ended with a backslash
  std::vector<Width> indents{Width{}};
  std::vector<std::pair<char, size_t>> brackets;
  std::vector<Token> tokens;
};

} // namespace

std::vector<Token> lex(uint32_t source, Diagnostics& diagnostics) { return Lexer(source, diagnostics).run(); }

} // namespace attnc::dsl
