// The terminal behind stdout and stderr: its width, colours, and text that fits it.
//
// Text that goes to a file or a pipe stays as it is: without colour, and with its lines whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace attnc::cli {

enum class Stream { Out, Err };
enum class ColorChoice { Auto, Always, Never };

/// Sets what --color says. Default: Auto.
void chooseColor(ColorChoice choice);
/// Whether text for a stream has colours: as --color says, else by NO_COLOR, CLICOLOR_FORCE, CLICOLOR and TERM, else if
/// the stream is a terminal.
bool isColored(Stream stream);

/// Whether a stream is a terminal.
bool isTerminal(Stream stream);

/// Returns the columns of the terminal: those of $COLUMNS, else those of stdout's terminal, else 80.
size_t terminalColumns();
/// Returns the columns for a text of sentences: those of the terminal, from 40 to 100.
size_t proseColumns();

/// Returns how many columns a text of one line has.
size_t columnsOf(std::string_view line);

/// Breaks one line at spaces so that it has at most `columns` columns, and indents what follows the first. A word that
/// is longer stays whole. Returns lines with a line end each.
std::string wrapped(std::string line, size_t columns, size_t indent);

enum class Style { Heading, Name, Error, Warning, Note, Caret, Full, Partial, Empty };
/// Returns the text in a style, if text for the stream has colours.
std::string styled(Stream stream, Style style, std::string_view text);

/// Writes messages to stderr: lines "error: ", "warning: ", "note: " and "hint: ", and marks under source lines, are
/// coloured. `text` is safe for a terminal (readableLines()).
void printMessage(std::string_view text);

/// Returns lines of a report for stdout: a label of up to 11 letters, and from column 12 on what it says. On a terminal
/// they fit, and labels are coloured.
std::string reportText(std::string_view text);

/// Returns a map of a mask for stdout: the cells of full, partial and empty blocks, and their names, are coloured.
std::string mapInColor(std::string_view text);

} // namespace attnc::cli
