#include "terminal.h"

#include "text.h"

#include "support/readable.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <sys/ioctl.h>
#include <unistd.h>
#include <vector>

namespace attnc::cli {
namespace {

constexpr size_t kLabelColumns = 12;

ColorChoice& colorChoice() {
  static ColorChoice choice = ColorChoice::Auto;
  return choice;
}

/// Returns a variable's value; "" if it is unset.
std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// Codes of styles, by their numbers.
constexpr const char* kCodes[] = {"1", "1;36", "1;31", "1;33", "1;36", "1;32", "36", "33", "2"};
static_assert(std::size(kCodes) == size_t(Style::Empty) + 1);

std::string inStyle(Style style, std::string_view text) {
  return "\033[" + std::string(kCodes[size_t(style)]) + "m" + std::string(text) + "\033[0m";
}

/// Calls `change` with each line, without its end, and joins the results.
template <class Change> std::string eachLine(std::string_view text, Change change) {
  std::string result;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    result += change(text.substr(0, end));
    if (end == std::string_view::npos) break;
    result += '\n';
    text.remove_prefix(end + 1);
  }
  return result;
}

/// Whether a text may stand before "error: ": nothing, "attnc: ", or a place in a file.
bool isPlace(std::string_view text) {
  if (text.empty() || text == "attnc: ") return true;
  return text.size() > 3 && text.ends_with(": ") && text[text.size() - 3] >= '0' && text[text.size() - 3] <= '9';
}

std::string messageLine(std::string_view line) {
  if (line.find('^') != std::string_view::npos && line.find_first_not_of(" ^~|") == std::string_view::npos) {
    const size_t mark = line.find_first_of("^~");
    return std::string(line.substr(0, mark)) + inStyle(Style::Caret, line.substr(mark));
  }
  constexpr std::pair<std::string_view, Style> kWords[] = {
      {"error:", Style::Error}, {"warning:", Style::Warning}, {"note:", Style::Note}, {"hint:", Style::Note}};
  for (const auto& [word, style] : kWords) {
    const size_t at = line.find(word);
    if (at == std::string_view::npos || !isPlace(line.substr(0, at))) continue;
    std::string place(line.substr(0, at));
    if (!place.empty()) place = inStyle(Style::Heading, place);
    std::string_view rest = line.substr(at + word.size());
    const bool isMain = style == Style::Error || style == Style::Warning;
    return place + inStyle(style, word) + (isMain ? inStyle(Style::Heading, rest) : std::string(rest));
  }
  return std::string(line);
}

/// Returns the style of a word that names a kind of blocks; nullptr for other words.
const Style* styleOfBlocks(std::string_view word) {
  static constexpr std::pair<std::string_view, Style> kWords[] = {
      {"full", Style::Full}, {"partial", Style::Partial}, {"empty", Style::Empty}};
  for (const auto& [name, style] : kWords)
    if (word == name) return &style;
  return nullptr;
}

std::string reportLine(std::string_view line) {
  const size_t first = line.find_first_not_of(' ');
  if (first == std::string_view::npos) return std::string(line);
  if (first == kLabelColumns) {
    const std::string_view word = line.substr(first, line.find(' ', first) - first);
    if (const Style* style = styleOfBlocks(word))
      return std::string(first, ' ') + inStyle(*style, word) + std::string(line.substr(first + word.size()));
  }
  if (first > 0 || line.size() <= kLabelColumns || line[kLabelColumns - 1] != ' ') return std::string(line);
  const std::string_view label = line.substr(0, line.find_last_not_of(' ', kLabelColumns - 1) + 1);
  std::string rest(line.substr(label.size()));
  if (label == "advisories" && !rest.ends_with(" none")) rest = inStyle(Style::Warning, rest);
  return inStyle(Style::Name, label) + rest;
}

} // namespace

bool isTerminal(Stream stream) { return ::isatty(stream == Stream::Out ? STDOUT_FILENO : STDERR_FILENO); }

void chooseColor(ColorChoice choice) { colorChoice() = choice; }

bool isColored(Stream stream) {
  if (colorChoice() != ColorChoice::Auto) return colorChoice() == ColorChoice::Always;
  if (!variable("NO_COLOR").empty()) return false;
  if (const std::string_view force = variable("CLICOLOR_FORCE"); !force.empty() && force != "0") return true;
  if (variable("CLICOLOR") == "0" || variable("TERM") == "dumb") return false;
  return isTerminal(stream);
}

size_t terminalColumns() {
  int64_t columns = 0;
  if (parseInteger(variable("COLUMNS"), columns) && columns > 0) return size_t(columns);
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col) return size.ws_col;
  return 80;
}

size_t proseColumns() { return std::clamp<size_t>(terminalColumns(), 40, 100); }

size_t columnsOf(std::string_view line) {
  size_t columns = 0;
  for (size_t at = 0; at < line.size(); at += characterAt(line, at).bytes) ++columns;
  return columns;
}

std::string wrapped(std::string line, size_t columns, size_t indent) {
  std::string text;
  while (columnsOf(line) > columns) {
    size_t cut = 0, column = 0; // the last space that leaves few enough columns before it, else the first one
    const size_t begin = std::max(line.find_first_not_of(' ', std::min(indent, line.size())), indent);
    for (size_t at = 0; at < line.size() && (column <= columns || cut == 0);
         at += characterAt(line, at).bytes, ++column)
      if (line[at] == ' ' && at > begin) cut = at;
    if (cut == 0) break;
    text += line.substr(0, line.find_last_not_of(' ', cut) + 1) + "\n";
    const size_t next = line.find_first_not_of(' ', cut);
    if (next == std::string::npos) return text;
    line = std::string(indent, ' ') + line.substr(next);
  }
  return text + line + "\n";
}

std::string styled(Stream stream, Style style, std::string_view text) {
  return isColored(stream) ? inStyle(style, text) : std::string(text);
}

void printMessage(std::string_view text) {
  const std::string colored = isColored(Stream::Err) ? eachLine(text, messageLine) : std::string(text);
  std::fwrite(colored.data(), 1, colored.size(), stderr);
}

std::string reportText(std::string_view text) {
  std::string result(text);
  if (isTerminal(Stream::Out)) {
    const size_t columns = std::max<size_t>(terminalColumns(), 3 * kLabelColumns);
    result = eachLine(text, [&](std::string_view line) {
      std::string lines = wrapped(std::string(line), columns, kLabelColumns);
      lines.pop_back();
      return lines;
    });
  }
  return isColored(Stream::Out) ? eachLine(result, reportLine) : result;
}

std::string mapInColor(std::string_view text) {
  if (!isColored(Stream::Out)) return std::string(text);
  constexpr std::pair<std::string_view, Style> kCells[] = {
      {"█", Style::Full}, {"▒", Style::Partial}, {"░", Style::Partial}, {"·", Style::Empty}};
  return eachLine(text, [&](std::string_view line) {
    std::string result;
    while (!line.empty()) {
      const auto cell = std::find_if(std::begin(kCells), std::end(kCells),
                                     [&](const auto& one) { return line.starts_with(one.first); });
      const size_t word = line.find(' ');
      size_t length = characterAt(line, 0).bytes;
      if (cell != std::end(kCells)) {
        while (line.substr(length).starts_with(cell->first)) length += cell->first.size();
        result += inStyle(cell->second, line.substr(0, length));
      } else if (const Style* style = styleOfBlocks(line.substr(0, word)); style && result.ends_with(' ')) {
        length = std::min(word, line.size());
        result += inStyle(*style, line.substr(0, length));
      } else {
        result += line.substr(0, length);
      }
      line.remove_prefix(length);
    }
    return result;
  });
}

} // namespace attnc::cli
