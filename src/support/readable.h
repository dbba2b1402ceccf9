// Makes text of mods, files and callers safe for terminals, logs and C strings.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace attnc {

/// The character at an index of a text.
struct Character {
  size_t bytes = 1; ///< its length
  bool isPrintable =
      /// False for bytes that are not UTF-8, and for characters that control a terminal or the direction of text.
      false;
};
/// Precondition: `at` is inside the text.
Character characterAt(std::string_view text, size_t at);

/// Returns the text as one line of valid UTF-8. Control characters, line ends and direction marks become \xNN or
/// \uNNNN; bytes that are not UTF-8 become U+FFFD. Other characters stay unchanged.
std::string readable(std::string_view text);
/// The same for a text of several lines, whose line ends (\n) stay.
std::string readableLines(std::string_view text);

} // namespace attnc
