// How a command is added, and how what came of it becomes an exit code.
#pragma once

#include "add_option.h"
#include "commands.h"
#include "problem/options.h"
#include "show/json_report.h"

#include <cstdio>
#include <memory>

namespace attnc::cli {

/// Returns the exit code of a command. Reports its error, with `asJson` also on stdout.
inline int exitCodeOf(int code, bool) { return code; }
inline int exitCodeOf(const Status& status, bool asJson) {
  return status ? kDone : reportEither(status.error(), asJson);
}
inline int exitCodeOf(const Expected<int>& code, bool asJson) {
  return code ? *code : reportEither(code.error(), asJson);
}

/// Prints what a command tells besides its output: to stderr if that goes to stdout.
inline Status printBeside(const std::string& output, const std::string& text) {
  if (output != "-") return printResult(text);
  std::fputs(text.c_str(), stderr);
  return {};
}

/// A command that was added, and its options.
template <class Options> struct Command {
  CLI::App& app;
  Options& options;
};

/// Adds a command. run(options) returns what exitCodeOf() takes.
template <class Options, class Run>
Command<Options> addCommand(CLI::App& app, int& exitCode, const char* name, const char* description, Run run) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(name, description);
  command->callback([options, run, &exitCode] {
    const auto result = run(*options);
    if constexpr (requires { options->json; })
      exitCode = exitCodeOf(result, options->json);
    else
      exitCode = exitCodeOf(result, /*asJson=*/false);
  });
  return {*command, *options};
}

} // namespace attnc::cli
