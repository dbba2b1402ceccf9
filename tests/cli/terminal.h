// The command on a terminal, as a test reads it.
#pragma once

#include <optional>
#include <string>

namespace attnc::test {

/// Returns what `attnc ARGUMENTS` prints to a terminal of this width, stdout and stderr, with lines that end in
/// \n. nullopt where there are no terminals; the test then says SKIPPED.
std::optional<std::string> onTerminal(const std::string& arguments, int columns);

/// Returns the length of the longest line, in characters.
size_t widest(const std::string& text);

} // namespace attnc::test
