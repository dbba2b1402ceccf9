// Options that subcommands share: which mod, which kernel; and the printing of errors and results.
#pragma once

#include "usage.h"

#include "attnc/compiler.h"
#include "attnc/mod.h"

#include <CLI/CLI.hpp>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace attnc::cli {

/// Where the mod's text comes from: a path ("-": stdin), or the text itself.
struct ModOptions {
  std::string path, expression;
  std::vector<std::string> defines;   // NAME=VALUE
  std::vector<std::string> mods;      // EXPRESSION
  std::vector<std::string> captures;  // NAME: TYPE
  std::vector<CaptureInfo> available; // of a file
  bool werror = false;
  std::vector<std::string> noWarn; // ids

  void addTo(CLI::App& command);
  /// All but the path.
  void addChoicesTo(CLI::App& command);
  /// Reads and checks the mod, and prints its warnings to stderr; they are an error with --werror. Throws CLI::Error
  /// unless exactly one of path and expression is given, and for defines that the mod does not have.
  Expected<Mod> load() const;
  /// The same, and says on stderr which functions of the text were taken, where there are others.
  Expected<Mod> loadTelling() const;
  /// The warnings that are not switched off.
  std::vector<Diagnostic> warnings(const Mod& mod) const;
};

/// Options of a kernel that operands would decide, for commands without operands.
struct TargetOptions {
  std::string arch; ///< empty: the command finds one; "native": that of the GPU
  std::string dtype = "bf16";
  int headDim = 128, headDimV = 0;
  bool fp8Kv = false; ///< k and v are e4m3

  void addTo(CLI::App& command);
  /// The arch that is meant; empty where none is named. Blame::Environment: there is no GPU whose arch "native" could
  /// be.
  Expected<std::string> archAsked() const;
};

/// What is static in a forward kernel and does not follow from the operands.
struct KernelFlags {
  std::string family = "auto", tile;
  bool tf32 = false;
  bool noCache = false;
  int64_t maxWork = 0;           ///< as CompilerOptions has it
  std::vector<std::string> pins; // NAME=N

  void addTo(CLI::App& command);
  /// Fills family, tile, tf32 and pins. Throws CLI::Error for a pin that is no integer.
  PrepareOptions toOptions() const;
  CompilerOptions toCompilerOptions() const;
};

/// The mod with its pins folded in. Throws CLI::ValidationError for a pin that names nothing or does not fit.
Expected<Mod> pinned(const Mod& mod, const KernelFlags& kernel);

/// A CLI11 transform of names that dtypeOf() takes.
CLI::Validator dtypes();
/// Adds --dtype, whose value becomes one that dtypeOf() takes.
CLI::Option* addDType(CLI::App& command, std::string& dtype, const char* help);
/// Precondition: "bf16", "fp16" or "fp32".
DType dtypeOf(const std::string& name);

/// Adds --set: NAME=VALUE, any number of them.
void addSets(CLI::App& command, std::vector<std::string>& sets);

/// Throws an error whose cause stands on the command line alone, as wrong usage; does nothing else.
void throwUsage(const char* option, const Error& error);

/// Prints an error to stderr; returns the exit code for its blame.
int report(const Error& error);

/// Writes to stdout and flushes; a failure (a full disk behind a redirection, a closed stream) is Blame::Environment.
Status printResult(std::string_view text);

} // namespace attnc::cli
