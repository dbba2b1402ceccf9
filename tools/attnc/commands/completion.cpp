// `attnc completion`: prints what a shell needs to complete commands, options and their values.
#include "commands/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

namespace attnc::cli {
namespace {

/// An option, as described to shells.
struct ShellOption {
  std::vector<std::string> names; ///< with their dashes
  std::string help;               ///< its first line
  std::string value;              ///< name of its value; empty if it takes none
  std::vector<std::string> choices;
  bool takesFile() const { return value == "FILE"; }
};

struct ShellCommand {
  std::string name, help;
  std::vector<ShellOption> options;
  bool takesMod = false;
  std::vector<std::string> choices; ///< choices of its argument, unless that is a mod
};

/// Escapes a text for single quotes in a shell, and for brackets in zsh.
std::string quoted(const std::string& text, const std::string& alsoEscaped = "") {
  std::string result;
  for (char c : text) {
    if (c == '\'')
      result += "'\\''";
    else
      result += alsoEscaped.find(c) == std::string::npos ? std::string(1, c) : std::string("\\") + c;
  }
  return result;
}

std::string firstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

ShellCommand describe(CLI::App& command) {
  ShellCommand result{.name = command.get_name(), .help = firstLine(command.get_description())};
  for (CLI::Option* option : command.get_options()) {
    if (option->get_positional()) {
      result.takesMod = option->get_type_name() == "MOD";
      for (const std::string& choice : choicesOf(*option)) result.choices.push_back(choice);
      continue;
    }
    ShellOption one{.help = firstLine(option->get_description()), .choices = choicesOf(*option)};
    for (const std::string& name : option->get_snames()) one.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) one.names.push_back("--" + name);
    if (option->get_items_expected_max() > 0)
      one.value = option->get_type_name().empty() ? "VALUE" : option->get_type_name();
    result.options.push_back(std::move(one));
  }
  for (CLI::App* inner : command.get_subcommands([](CLI::App*) { return true; })) {
    result.choices.push_back(inner->get_name());
    for (ShellOption& option : describe(*inner).options) {
      const auto isSame = [&](const ShellOption& other) { return other.names == option.names; };
      if (std::none_of(result.options.begin(), result.options.end(), isSame))
        result.options.push_back(std::move(option));
    }
  }
  return result;
}

std::string joinedNames(const std::vector<ShellCommand>& commands, const char* between) {
  std::string names;
  for (const ShellCommand& command : commands) names += (names.empty() ? "" : between) + command.name;
  return names;
}

std::string bashScript(const std::vector<ShellCommand>& commands) {
  std::string values, cases;
  for (const ShellCommand& command : commands) {
    std::string all;
    for (const ShellOption& option : command.options) {
      std::string pattern;
      for (const std::string& name : option.names) {
        all += (all.empty() ? "" : " ") + name;
        pattern += fmt::format("{}'{} {}'", pattern.empty() ? "" : " | ", command.name, name);
      }
      if (option.value.empty() || option.takesFile()) continue; // bash completes files by itself
      values += option.choices.empty() ? fmt::format("    {}) compopt +o default +o bashdefault; return ;;\n", pattern)
                                       : fmt::format("    {}) COMPREPLY=($(compgen -W '{}' -- \"$cur\")); return ;;\n",
                                                     pattern, fmt::join(option.choices, " "));
    }
    cases +=
        fmt::format("    {}) options='{}' arguments='{}' ;;\n", command.name, all, fmt::join(command.choices, " "));
  }
  return fmt::format(R"(# bash completion of attnc: source <(attnc completion bash)
_attnc() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} command= options= arguments= i
  COMPREPLY=()
  if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${{COMP_WORDS[COMP_CWORD-2]}}; fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${{COMP_WORDS[i]}} in {0}) command=${{COMP_WORDS[i]}}; break ;; esac
  done
  case "$command $prev" in
{1}  esac
  case $command in
{2}    *) options='-h --help -V --version --color' arguments='{3}' ;;
  esac
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$cur"))
  else
    COMPREPLY=($(compgen -W "$arguments" -- "$cur"))
  fi
}}
complete -o bashdefault -o default -F _attnc attnc
)",
                     joinedNames(commands, "|"), values, cases, joinedNames(commands, " "));
}

std::string zshScript(const std::vector<ShellCommand>& commands) {
  std::string listed, cases;
  for (const ShellCommand& command : commands) {
    listed += fmt::format("    '{}:{}'\n", command.name, quoted(command.help, ":"));
    std::string arguments;
    for (const ShellOption& option : command.options)
      for (const std::string& name : option.names) {
        std::string action;
        if (!option.value.empty())
          action = fmt::format(":{}:{}", quoted(option.value, ":"),
                               !option.choices.empty() ? fmt::format("({})", fmt::join(option.choices, " "))
                               : option.takesFile()    ? "_files"
                                                       : " ");
        const char* sign = option.value.empty() ? "" : name.rfind("--", 0) == 0 ? "=" : "+";
        arguments += fmt::format(" \\\n        '*{}{}[{}]{}'", name, sign, quoted(option.help, "[]:\\"), action);
      }
    if (command.takesMod) arguments += " \\\n        '::mod:_files -g \"*.(py|ir)\"'";
    if (!command.choices.empty())
      arguments += fmt::format(" \\\n        ':shell:({})'", fmt::join(command.choices, " "));
    cases += fmt::format("      {}) _arguments{} ;;\n", command.name, arguments);
  }
  return fmt::format(R"(#compdef attnc
# zsh completion of attnc: attnc completion zsh > "${{fpath[1]}}/_attnc"
_attnc() {{
  local state line
  local -a commands
  commands=(
{0}  )
  _arguments -C '(-h --help)'{{-h,--help}}'[Print help]' '(-V --version)'{{-V,--version}}'[Print versions]' \
    '--color=[When text has colours]:WHEN:(auto always never)' ': :->command' '*:: :->argument'
  case $state in
  command) _describe command commands ;;
  argument)
    case $line[1] in
{1}    esac ;;
  esac
}}
if [[ $funcstack[1] == _attnc ]]; then _attnc "$@"; else compdef _attnc attnc; fi
)",
                     listed, cases);
}

std::string fishScript(const std::vector<ShellCommand>& commands) {
  std::string text = "# fish completion of attnc: attnc completion fish | source\n"
                     "complete -c attnc -n __fish_use_subcommand -f\n";
  for (const ShellCommand& command : commands) {
    text += fmt::format("complete -c attnc -n __fish_use_subcommand -f -a {} -d '{}'\n", command.name,
                        quoted(command.help));
    const std::string start = fmt::format("complete -c attnc -n '__fish_seen_subcommand_from {}'", command.name);
    for (const ShellOption& option : command.options) {
      std::string names;
      for (const std::string& name : option.names)
        names += name.rfind("--", 0) == 0 ? " -l " + name.substr(2) : " -s " + name.substr(1);
      std::string value;
      if (!option.value.empty()) value = option.takesFile() ? " -r -F" : " -x";
      if (!option.choices.empty()) value += fmt::format(" -a '{}'", fmt::join(option.choices, " "));
      text += fmt::format("{}{}{} -d '{}'\n", start, names, value, quoted(option.help));
    }
    if (!command.choices.empty()) text += fmt::format("{} -f -a '{}'\n", start, fmt::join(command.choices, " "));
  }
  return text;
}

Status runCompletion(CLI::App& app, const std::string& shell) {
  std::vector<ShellCommand> commands;
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) commands.push_back(describe(*command));
  return printResult(shell == "bash"  ? bashScript(commands)
                     : shell == "zsh" ? zshScript(commands)
                                      : fishScript(commands));
}

} // namespace

void addCompletion(CLI::App& app, int& exitCode) {
  auto [command, shell] =
      addCommand<std::string>(app, exitCode, "completion", "Print what a shell needs to complete this command",
                              [&app](const std::string& name) { return runCompletion(app, name); });
  addChoice(command, "shell", shell, "SHELL", {"bash", "zsh", "fish"}, "bash, zsh, fish")->required();
  command.footer(R"(Examples:
  source <(attnc completion bash)
  attnc completion zsh > "${fpath[1]}/_attnc"
  attnc completion fish > ~/.config/fish/completions/attnc.fish)");
}

} // namespace attnc::cli
