// Text of mods, files and callers, as terminals, logs and C strings may have it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace attnc {

/// The character at an index of a text.
struct Character {
  size_t bytes = 1; ///< that it takes
  bool isPrintable =
      false; ///< not: bytes that are no UTF-8, and characters that steer a terminal or the direction of text
};
/// Precondition: `at` is inside.
Character characterAt(std::string_view text, size_t at);

/// The text in one line of valid UTF-8. Control characters, line ends among them, and marks of direction become \xNN or
/// \uNNNN, bytes that are no UTF-8 U+FFFD. A text that is such a line stays as it is.
std::string readable(std::string_view text);
/// The same for a text of several lines, whose ends (\n) stay.
std::string readableLines(std::string_view text);

} // namespace attnc
