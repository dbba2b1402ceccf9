#include "commands/help.h"

#include "commands/command.h"
#include "commands/version.h"
#include "terminal.h"
#include "text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace attnc::cli {
namespace {

constexpr size_t kNameColumns = 24; // of an option's name, with the indent before it

using Names = std::vector<const char*>;

/// The headings in their order, and the options under each.
const std::vector<std::pair<std::string, Names>> kHeadings = {
    {"Mod", {"expr", "mod", "capture", "define", "werror", "no-warn", "language"}},
    {"Claims", {"prove", "never", "every-row-lives", "same-as", "assume", "seconds", "budget"}},
    {"Problem", {"shape",      "strides", "random",    "in",         "set",       "draw",       "seed",   "large",
                 "scale",      "at",      "score",     "dtype",      "head-dim",  "head-dim-v", "v-in-k", "fp8-kv",
                 "row-scales", "scales",  "out-dtype", "kv-lengths", "page-size", "q-offset",   "ragged", "kind"}},
    {"Kernel",
     {"kernel", "arch", "backward", "gradients", "deterministic", "kernel-family", "tile",
#define ATTNC_CHOICE(type, member, c_type, name, limit, flag, text) flag,
#include "attnc/choices.def"
      "pin", "block-sparse", "no-block-mask", "by-block", "by-row", "rotate", "rotary", "interleaved", "row-max",
      "max-work", "no-cache", "device"}},
    {"Ranks", {"world", "layout", "head-groups", "stages", "flops", "bandwidth"}},
    {"Output", {"stage",  "launch",  "launcher", "print-after", "output",   "save-operands", "lse",
                "verify", "json",    "html",     "scores",      "block",    "batch",         "head",
                "rows",   "columns", "query",    "box",         "max-size", "older-than",    "dry-run"}},
    {"Other", {"color", "help", "help-all", "version"}}};

/// Options that few need. The help of a command with more than a few of them only names them.
const Names kSeldom = {"werror",        "no-warn",  "strides",      "seed",          "large",     "head-dim-v",
                       "v-in-k",        "fp8-kv",   "row-scales",   "scales",        "out-dtype", "kv-lengths",
                       "page-size",     "q-offset", "ragged",       "deterministic",
#define ATTNC_CHOICE(type, member, c_type, name, limit, flag, text) flag,
#include "attnc/choices.def"
                       "kernel-family", "tile",     "block-sparse", "no-block-mask", "row-max",   "max-work",
                       "no-cache",      "launcher", "print-after",  "save-operands", "color"};
constexpr int64_t kFew = 4;

bool contains(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Returns the heading of an option. The last one has the options that no list names.
std::string headingOf(const CLI::Option& option) {
  for (const auto& [heading, names] : kHeadings)
    for (const std::string& name : option.get_lnames())
      if (contains(names, name)) return heading;
  return kHeadings.back().first;
}

bool isSeldom(const CLI::Option* option) {
  const std::vector<std::string>& names = option->get_lnames();
  return !option->get_group().empty() && !names.empty() && contains(kSeldom, names.front());
}

/// Whether the help of a command leaves out what few need.
bool isShortened(const CLI::App& command) {
  const std::vector<const CLI::Option*> options = command.get_options();
  return std::count_if(options.begin(), options.end(), isSeldom) > kFew;
}

/// Returns the name of an option's value; CLI11 adds those of checks, and has types for names.
std::string valueName(const CLI::Option& option) {
  std::string name = option.get_type_name();
  for (const std::string_view check : {":POSITIVE", ":NONNEGATIVE"})
    if (name.ends_with(check)) name.resize(name.size() - check.size());
  if (name == "UINT" || name == "INT") return "N";
  return name == "FLOAT" ? "NUMBER" : name;
}

/// Returns "-D, --define NAME=VALUE ..."; only the first long name.
std::string namesOf(const CLI::Option& option) {
  std::string text;
  if (option.get_positional()) {
    text = valueName(option);
  } else {
    for (const std::string& name : option.get_snames()) text += "-" + name + ", ";
    if (option.get_lnames().empty())
      text.resize(text.size() - 2);
    else
      text += "--" + option.get_lnames().front();
    if (option.get_items_expected_max() > 0) text += " " + valueName(option);
  }
  if (option.get_expected_max() >= CLI::detail::expected_max_vector_size) text += " ...";
  return text;
}

std::string descriptionOf(const CLI::Option& option) {
  std::string text = option.get_description();
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::string standard = option.get_default_str();
  if (standard.size() > 1 && standard.front() == '[') standard = standard.substr(1, standard.size() - 2);
  if (!standard.empty()) text += " [default: " + standard + "]";
  std::string needed;
  for (const CLI::Option* other : option.get_needs())
    if (!other->get_lnames().empty()) needed += (needed.empty() ? " [with --" : ", --") + other->get_lnames().front();
  if (!needed.empty()) text += needed + "]";
  if (option.get_required() && !option.get_positional()) text += " [required]";
  return text;
}

/// Returns a line of a list: a name, and what it means, from the column `kNameColumns` on.
std::string entry(const std::string& name, const std::string& meaning) {
  const std::string indented = "  " + name;
  const bool fits = columnsOf(indented) + 2 <= kNameColumns;
  std::string lines =
      wrapped((fits ? fmt::format("{:{}}", indented, kNameColumns) : std::string(kNameColumns, ' ')) + meaning,
              proseColumns(), kNameColumns);
  if (!fits) return wrapped(styled(Stream::Out, Style::Name, indented), SIZE_MAX, 0) + lines;
  return styled(Stream::Out, Style::Name, indented) + lines.substr(indented.size());
}

std::string heading(const std::string& text) { return styled(Stream::Out, Style::Heading, text) + "\n"; }

/// Breaks a command that is too long before an option, with a backslash.
std::string commandLine(std::string line) {
  const size_t columns = proseColumns();
  std::string text;
  while (columnsOf(line) > columns) {
    size_t cut = line.rfind(" -", columns - 2);
    if (cut == std::string::npos || cut < 8) cut = line.rfind(' ', columns - 2);
    if (cut == std::string::npos || cut < 8) break;
    text += line.substr(0, cut) + " \\\n";
    line = "      " + line.substr(cut + 1);
  }
  return text + line + "\n";
}

/// Lays out paragraphs.
std::string paragraphs(const std::string& text) {
  std::string result, open; // the paragraph so far
  const auto close = [&] {
    if (open.empty()) return;
    const bool isHeading = open.back() == ':' && open.find(' ') == std::string::npos;
    result += isHeading ? heading(open) : wrapped(std::exchange(open, ""), proseColumns(), 0);
    open.clear();
  };
  for (const std::string& line : CLI::detail::split(text, '\n')) {
    const bool isVerbatim = line.rfind("  ", 0) == 0;
    if (!line.empty() && !isVerbatim) {
      open += (open.empty() ? "" : " ") + line;
      continue;
    }
    close();
    result += line.rfind("  attnc ", 0) == 0 ? commandLine(line) : line + "\n";
  }
  close();
  return result;
}

std::string usageText(const CLI::App& command, const std::string& name) {
  std::string text = styled(Stream::Out, Style::Heading, "Usage:") + " " + name + " [OPTIONS]";
  for (const CLI::Option* option : command.get_options([](const CLI::Option* one) { return one->get_positional(); })) {
    std::string value = valueName(*option);
    if (option->get_expected_max() > 1) value += "...";
    text += " " + (option->get_required() ? value : "[" + value + "]");
  }
  const bool hasCommands = !command.get_subcommands([](const CLI::App*) { return true; }).empty();
  return text + (hasCommands ? " COMMAND\n" : "\n");
}

/// Returns the lists of options, by their headings.
std::string optionsText(const CLI::App& command, bool isShort) {
  std::string arguments, seldom;
  for (const CLI::Option* option : command.get_options())
    if (option->get_positional()) arguments += entry(namesOf(*option), descriptionOf(*option));
  if (!arguments.empty()) arguments = "\n" + heading("Argument:") + arguments;
  std::string text;
  for (const auto& [title, names] : kHeadings) {
    std::string options;
    for (const CLI::Option* option : command.get_options())
      if (!option->get_positional() && option->get_group() == title) {
        if (isShort && isSeldom(option))
          seldom += (seldom.empty() ? "  --" : ", --") + option->get_lnames().front();
        else
          options += entry(namesOf(*option), descriptionOf(*option));
      }
    if (!options.empty()) text += "\n" + heading(title + ":") + options;
  }
  if (!seldom.empty()) text += "\n" + heading("More, explained by --help-all:") + wrapped(seldom, proseColumns(), 2);
  return arguments + text;
}

/// Returns the lists of commands, by their groups. Commands of a group follow each other.
std::string commandsText(const CLI::App& command) {
  std::string text, group;
  for (const CLI::App* one : command.get_subcommands([](const CLI::App*) { return true; })) {
    if (one->get_group() != group) {
      group = one->get_group();
      text += "\n" + heading((group == "Subcommands" ? "Commands" : group) + ":");
    }
    text += entry(one->get_name(), one->get_description());
  }
  return text;
}

/// The words behind `attnc help`: a command, and one of its own commands.
using HelpWords = std::array<std::string, 2>;

Status runHelp(const CLI::App& app, const HelpWords& words) {
  const CLI::App* found = &app;
  std::string name = app.get_name();
  for (const std::string& word : words) {
    if (word.empty()) break;
    const auto inner = found->get_subcommands([&](const CLI::App* one) { return one->get_name() == word; });
    if (inner.empty()) throw wrongUsage("help", inQuotes(name + " " + word) + " is no command", "attnc help");
    found = inner.front();
    name += " " + word;
  }
  return printResult(helpText(found, name, CLI::AppFormatMode::Normal));
}

std::vector<Choice> namesIn(const CLI::App& app) {
  std::vector<Choice> names;
  for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; }))
    names.emplace_back(one->get_name());
  return names;
}

} // namespace

std::string helpText(const CLI::App* command, const std::string& name, CLI::AppFormatMode mode) {
  const bool isShort = mode != CLI::AppFormatMode::All && isShortened(*command);
  std::string text = paragraphs(command->get_description()) + "\n" + usageText(*command, name) +
                     commandsText(*command) + optionsText(*command, isShort);
  std::string footer = command->get_footer();
  if (const size_t first = footer.find("\n\n"), examples = footer.find("\n\nExamples:"); isShort && first < examples)
    footer.erase(first, examples - first);
  if (!footer.empty()) text += "\n" + paragraphs(footer);
  return text;
}

void finishCommands(CLI::App& app) {
  addParsed(
      app, "--color", [](const std::string&) {}, "WHEN", // main() has read it
      "When text has colours: auto (on a terminal, unless NO_COLOR is set), always, never")
      ->transform(oneOf({"auto", "always", "never"}));
  if (isShortened(app)) app.set_help_all_flag("--help-all", "Print this message with all options explained, and exit");
  for (CLI::Option* option : app.get_options())
    if (!option->get_positional() && !option->get_group().empty()) option->group(headingOf(*option));
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) finishCommands(*command);
}

void addHelp(CLI::App& app, int& exitCode) {
  auto [command, words] =
      addCommand<HelpWords>(app, exitCode, "help", "Print the help of a command, as `attnc COMMAND --help` does",
                            [&app](const HelpWords& given) { return runHelp(app, given); });
  addChoice(command, "command", words[0], "COMMAND", namesIn(app), "Which command, such as mask");
  addChoice(command, "inner", words[1], "INNER", namesIn(*app.get_subcommand("cache")),
            "A command of cache, such as ls");
  command.footer("Examples:\n  attnc help mask\n  attnc help cache prune");
}

void addVersion(CLI::App& app, int& exitCode) {
  CLI::App* command = app.add_subcommand("version", "Print the versions of attnc, NVRTC and LLVM");
  command->footer("`attnc doctor` says more.\n\nExamples:\n  attnc version");
  command->callback([&exitCode] { exitCode = exitCodeOf(printResult(versionText()), /*asJson=*/false); });
}

} // namespace attnc::cli
