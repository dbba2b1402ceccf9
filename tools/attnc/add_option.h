// Options of commands, a call each. CLI11 would take a call for each property, and a line.
#pragma once

#include "usage.h"

#include <CLI/CLI.hpp>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace attnc::cli {

/// Adds an option. `value`: the name of its value in --help.
template <class T>
CLI::Option* addOption(CLI::App& command, const char* names, T& to, const char* value, const std::string& help) {
  return command.add_option(names, to, help)->type_name(value);
}

/// Adds an option that may be given again, with one value each time.
template <class T>
CLI::Option* addRepeated(CLI::App& command, const char* names, std::vector<T>& to, const char* value,
                         const std::string& help) {
  return addOption(command, names, to, value, help)->allow_extra_args(false);
}

/// Adds an option whose values stand in a list with commas.
template <class T>
CLI::Option* addList(CLI::App& command, const char* names, std::vector<T>& to, const char* value,
                     const std::string& help) {
  return addOption(command, names, to, value, help)->delimiter(',');
}

/// Adds an option whose text `take` reads.
template <class Take>
CLI::Option* addParsed(CLI::App& command, const char* names, Take take, const char* value, const std::string& help) {
  return command.add_option_function<std::string>(names, std::move(take), help)->type_name(value);
}

/// Adds an option that takes one of the choices.
inline CLI::Option* addChoice(CLI::App& command, const char* names, std::string& to, const char* value,
                              std::vector<Choice> choices, const std::string& help) {
  return addOption(command, names, to, value, help)->capture_default_str()->transform(oneOf(std::move(choices)));
}

/// Adds --head-dim. `of`: which tensors have it.
inline CLI::Option* addHeadDim(CLI::App& command, int& headDim, const std::string& of) {
  return command.add_option("--head-dim", headDim, of + ": a multiple of 8 from 8 to 256; decode on sm_90a: to 576")
      ->capture_default_str()
      ->check(checkHeadDim);
}

/// Says which options may not be given with this one.
inline void excludes(CLI::Option* option, std::initializer_list<const char*> others) {
  for (const char* other : others) option->excludes(other);
}

/// Adds an option that takes the name of a file.
inline CLI::Option* addFile(CLI::App& command, const char* names, std::string& to, const std::string& help) {
  return addOption(command, names, to, "FILE", help);
}

} // namespace attnc::cli
