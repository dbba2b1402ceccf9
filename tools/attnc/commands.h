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

/// Adds `attnc completion`, which describes all other subcommands to a shell. Call it last.
void addCompletion(CLI::App& app, int& exitCode);

/// Adds `attnc help`, which knows the commands that were added before.
void addHelp(CLI::App& app, int& exitCode);

/// Each adds a subcommand: `attnc check`, `attnc emit` and so on. `exitCode` must outlive `app`; it receives the
/// subcommand's exit code.
void addCheck(CLI::App& app, int& exitCode);
void addMask(CLI::App& app, int& exitCode);
void addProbe(CLI::App& app, int& exitCode);
void addEmit(CLI::App& app, int& exitCode);
void addExplain(CLI::App& app, int& exitCode);
void addShard(CLI::App& app, int& exitCode);
void addServe(CLI::App& app, int& exitCode);
void addRun(CLI::App& app, int& exitCode);
void addQuantise(CLI::App& app, int& exitCode);
void addBench(CLI::App& app, int& exitCode);
void addTune(CLI::App& app, int& exitCode);
void addCache(CLI::App& app, int& exitCode);
void addPack(CLI::App& app, int& exitCode);
void addNew(CLI::App& app, int& exitCode);
void addGallery(CLI::App& app, int& exitCode);
void addDoctor(CLI::App& app, int& exitCode);
void addVersion(CLI::App& app, int& exitCode);

} // namespace attnc::cli
