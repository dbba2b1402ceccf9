// The subcommands, one file each. Each parses its own options and does its work when CLI11 finds it on the command
// line. Wrong usage throws a CLI::Error; everything else ends in an exit code.
#pragma once

#include "cli_fwd.h"

#include <string>

namespace attnc::cli {

/// The exit codes of the process.
enum ExitCode : int {
  kDone = 0,
  kModWrong = 1,         ///< the text of the mod
  kUsageWrong = 2,       ///< the command line
  kEnvironmentWrong = 3, ///< files, shapes, captures, GPU, NVRTC
  kInternalError = 4,    ///< a bug in attnc, or a result that --verify rejects
};

/// Parses the command line and runs its subcommand. Returns the exit code.
int runApp(int argc, char** argv);

/// Returns all commands and their options as JSON, for `attnc --help-json`.
std::string helpJson(CLI::App& app);

/// Each adds a subcommand: `attnc check`, `attnc emit` and so on. `exitCode` must outlive `app`; it receives the
/// subcommand's exit code.
#define ATTNC_COMMAND(name, heading) void add##name(CLI::App& app, int& exitCode);
#include "commands.def"

} // namespace attnc::cli
