// `attnc gallery`: lists the mods of the library, and prints or writes one.
#include "commands.h"
#include "output_file.h"
#include "problem/options.h"
#include "show/json_report.h"
#include "show/library_mods.h"
#include "terminal.h"
#include "text.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
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
  const size_t begin = text.find("\"\"\"");
  if (begin == std::string::npos) return "";
  std::string docstring = text.substr(begin + 3, text.find("\"\"\"", begin + 3) - begin - 3);
  std::string line;
  for (const char c : docstring)
    if (c != '\n' || (!line.empty() && line.back() != '\n')) line += c;
  for (char& c : line)
    if (c == '\n') c = ' ';
  return line;
}

/// Returns a text without what stands in parentheses with a year or an address.
std::string withoutCitations(std::string text) {
  for (size_t open = text.find(" ("); open != std::string::npos; open = text.find(" (", open + 1)) {
    const size_t close = text.find(')', open);
    if (close == std::string::npos) break;
    const std::string inside = text.substr(open, close - open);
    if (inside.find(" et al") == std::string::npos && inside.find("http") == std::string::npos &&
        inside.find(" 20") == std::string::npos)
      continue;
    text.erase(open, close + 1 - open);
    --open;
  }
  return text;
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

std::string listText() {
  const std::vector<Card> all = cards();
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

std::string galleryJson(const std::string& name) {
  JsonReport json{{"ok", true}};
  if (name.empty()) json["mods"] = JsonReport::array();
  for (const Card& card : cards()) {
    if (name.empty()) json["mods"].push_back(jsonOf(card));
    if (card.name != name) continue;
    json.update(jsonOf(card));
    json["text"] = card.text;
  }
  return jsonText(json);
}

struct GalleryOptions {
  std::string name, output;
  bool json = false;
};

int runGallery(const GalleryOptions& options) {
  if (!options.output.empty() && options.name.empty())
    throw wrongUsage("-o", "it is for one mod", "name the mod: attnc gallery alibi -o alibi.py");
  if (!options.output.empty() && options.output != "-") {
    if (std::filesystem::exists(options.output))
      return report(
          Error::environment(inQuotes(options.output) + " is there already", "name another file, or remove it"));
    for (const Card& card : cards())
      if (card.name == options.name)
        if (auto status = writeWholeFile(options.output, {card.text}); !status) return report(status.error());
    if (!options.json) return kDone;
  }
  std::string text = options.json ? galleryJson(options.name) : options.name.empty() ? listText() : "";
  for (const Card& card : cards())
    if (card.name == options.name && !options.json) text = card.text;
  auto status = printResult(text);
  return status ? kDone : report(status.error());
}

} // namespace

void addGallery(CLI::App& app, int& exitCode) {
  auto options = std::make_shared<GalleryOptions>();
  CLI::App* command = app.add_subcommand("gallery", "List the published mods of the library; print or write one");
  std::vector<Choice> names;
  for (unsigned i = 0; i < kLibraryModCount; ++i) names.push_back({kLibraryMods[i].name, {}});
  command->add_option("name", options->name, "The mod to print; without it all are listed")
      ->type_name("NAME")
      ->transform(oneOf(std::move(names)));
  command->add_option("-o,--output", options->output, "Where to: a new file; default stdout, -")->type_name("FILE");
  command->add_flag("--json", options->json, "For programs: names, what they are, papers; of one mod its text as well");
  command->footer("Each is published work, and tested against CPython. `attnc mask` draws it.\n\n"
                  "Examples:\n"
                  "  attnc gallery\n"
                  "  attnc gallery sliding_window -o window.py");
  command->callback([options, &exitCode] { exitCode = runGallery(*options); });
}

} // namespace attnc::cli
