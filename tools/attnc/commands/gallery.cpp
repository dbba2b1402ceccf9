// `attnc gallery`: lists the mods of the library, and prints or writes one.
#include "commands/command.h"
#include "output_file.h"
#include "show/library_mods.h"
#include "terminal.h"
#include "text.h"

#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

namespace attnc::cli {
namespace {

/// What the docstring of a library mod says.
struct Card {
  std::string name, title;
  std::vector<std::string> papers; ///< their addresses
  std::string text;                ///< the file
};

/// Returns the docstring, in one line.
std::string docstringOf(const std::string& text) {
  const std::string quotes = "\"\"\"";
  const size_t begin = text.find(quotes);
  if (begin == std::string::npos) return "";
  const size_t first = text.find_first_not_of('\n', begin + quotes.size());
  return std::regex_replace(text.substr(first, text.find(quotes, first) - first), std::regex("\n+"), " ");
}

/// Returns a text without what stands in parentheses with a year or an address.
std::string withoutCitations(const std::string& text) {
  return std::regex_replace(text, std::regex(R"( \([^)]*( et al|http| 20)[^)]*\))"), "");
}

Card cardOf(const LibraryMod& mod) {
  Card card{mod.name, "", {}, mod.text};
  const std::string docstring = docstringOf(card.text);
  for (size_t at = docstring.find("http"); at != std::string::npos; at = docstring.find("http", at + 1)) {
    std::string paper = docstring.substr(at, docstring.find_first_of(" ,;)", at) - at);
    while (paper.ends_with('.')) paper.pop_back();
    card.papers.push_back(std::move(paper));
  }
  card.title = withoutCitations(docstring);
  for (size_t at = card.title.find(". "); at != std::string::npos; at = card.title.find(". ", at + 1)) {
    if (at == 0 || card.title[at - 1] == ' ') continue; // a product of vectors
    card.title.resize(at);
    break;
  }
  if (card.title.ends_with('.')) card.title.pop_back();
  return card;
}

std::vector<Card> cards() {
  std::vector<Card> all;
  for (unsigned i = 0; i < kLibraryModCount; ++i) all.push_back(cardOf(kLibraryMods[i]));
  return all;
}

std::string listText(const std::vector<Card>& all) {
  size_t width = 0;
  for (const Card& card : all) width = std::max(width, card.name.size() + 2);
  std::string text;
  for (const Card& card : all) {
    const std::string papers = card.papers.empty() ? "" : "; " + card.papers.front();
    const std::string line = fmt::format("{:{}}{}{}", card.name, width, card.title, papers);
    const std::string lines = isTerminal(Stream::Out) ? wrapped(line, proseColumns(), width) : line + "\n";
    text += styled(Stream::Out, Style::Name, card.name) + lines.substr(card.name.size());
  }
  return text;
}

JsonReport jsonOf(const Card& card) { return {{"name", card.name}, {"title", card.title}, {"papers", card.papers}}; }

struct GalleryOptions {
  std::string name, output;
  bool json = false;
};

Status runGallery(const GalleryOptions& options) {
  if (!options.output.empty() && options.name.empty())
    throw wrongUsage("-o", "it is for one mod", "name the mod: attnc gallery alibi -o alibi.py");
  const std::vector<Card> all = cards();
  const auto card = std::find_if(all.begin(), all.end(), [&](const Card& one) { return one.name == options.name; });
  if (!options.output.empty() && options.output != "-") {
    if (std::filesystem::exists(options.output))
      return Error::environment(inQuotes(options.output) + " is there already", "name another file, or remove it");
    ATTNC_TRY(writeWholeFile(options.output, {card->text}));
    if (!options.json) return {};
  }
  if (!options.json) return printResult(options.name.empty() ? listText(all) : card->text);
  JsonReport json{{"ok", true}};
  if (options.name.empty()) {
    json["mods"] = JsonReport::array();
    for (const Card& one : all) json["mods"].push_back(jsonOf(one));
  } else {
    json.update(jsonOf(*card));
    json["text"] = card->text;
  }
  return printResult(jsonText(json));
}

} // namespace

void addGallery(CLI::App& app, int& exitCode) {
  auto [command, options] = addCommand<GalleryOptions>(
      app, exitCode, "gallery", "List the published mods of the library; print or write one", runGallery);
  std::vector<Choice> names;
  for (unsigned i = 0; i < kLibraryModCount; ++i) names.emplace_back(kLibraryMods[i].name);
  addChoice(command, "name", options.name, "NAME", std::move(names), "The mod to print; without it all are listed");
  addFile(command, "-o,--output", options.output, "Where to: a new file; default stdout, -");
  command.add_flag("--json", options.json, "For programs: names, what they are, papers; of one mod its text as well");
  command.footer(R"(Each is published work, and tested against CPython. `attnc mask` draws it.

Examples:
  attnc gallery
  attnc gallery sliding_window -o window.py)");
}

} // namespace attnc::cli
