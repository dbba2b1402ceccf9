// `attnc --help-json` prints all commands and options as JSON. The command reference is made from it.
#include "commands.h"
#include "usage.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace attnc::cli {
namespace {

nlohmann::ordered_json describe(CLI::Option& option) {
  nlohmann::ordered_json names = nlohmann::ordered_json::array();
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  if (option.get_positional()) names = {option.get_name(true)};
  return {{"names", names},
          {"positional", option.get_positional()},
          {"required", option.get_required()},
          {"repeats", option.get_items_expected_max() > 1},
          {"value", option.get_items_expected_max() > 0 ? option.get_type_name() : ""},
          {"default", option.get_default_str()},
          {"choices", choicesOf(option)},
          {"group", option.get_group()},
          {"help", option.get_description()}};
}

nlohmann::ordered_json describe(CLI::App& command) {
  nlohmann::ordered_json options = nlohmann::ordered_json::array(), inner = nlohmann::ordered_json::array();
  // Groups without a name are hidden. A group of options is an app without a name.
  const auto addOptions = [&](CLI::App& app) {
    for (CLI::Option* option : app.get_options())
      if (!option->get_group().empty()) options.push_back(describe(*option));
  };
  addOptions(command);
  for (CLI::App* child : command.get_subcommands([](CLI::App*) { return true; }))
    if (child->get_name().empty())
      addOptions(*child);
    else if (!child->get_group().empty())
      inner.push_back(describe(*child));
  return {{"name", command.get_name()},     {"group", command.get_group()}, {"description", command.get_description()},
          {"footer", command.get_footer()}, {"options", options},           {"commands", inner}};
}

} // namespace

std::string helpJson(CLI::App& app) { return describe(app).dump(1) + "\n"; }

} // namespace attnc::cli
