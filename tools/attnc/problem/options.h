// Options that subcommands share (which mod, which kernel), and the printing of errors and results.
#pragma once

#include "cli_fwd.h"
#include "usage.h"

#include "attnc/compiler.h"
#include "attnc/mod.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace attnc::cli {

/// The source of the mod's text: a path ("-": stdin), or the text itself.
struct ModOptions {
  std::string path, expression;
  std::vector<std::string> defines;   // NAME=VALUE
  std::vector<std::string> mods;      // EXPRESSION
  std::vector<std::string> captures;  // NAME: TYPE
  std::vector<CaptureInfo> available; // captures of a file
  bool werror = false;
  std::vector<std::string> noWarn; // ids

  void addTo(CLI::App& command);
  /// Adds all options but the path.
  void addChoicesTo(CLI::App& command);
  /// Reads and checks the mod, and prints its warnings to stderr; with --werror they are an error. Throws CLI::Error
  /// unless exactly one of path and expression is given, and for defines that the mod does not have.
  Expected<Mod> load() const;
  /// Does the same. If the text has other candidates, also says on stderr which functions were taken.
  Expected<Mod> loadTelling() const;
  /// Returns the warnings that are not switched off.
  std::vector<Diagnostic> warnings(const Mod& mod) const;
};

/// What is e4m3, next to --dtype, and what goes with it.
struct Fp8Options {
  bool kv = false;              ///< whether k and v are e4m3, and q is not
  std::string scales = "heads"; ///< what has a scale of its own: "heads", "blocks", "rows", "pages"
  std::string outDType;         ///< dtype of out if q is e4m3; empty: bf16

  /// Adds the options. `draws`: whether the command draws scales, and so can have those of blocks and pages.
  void addTo(CLI::App& command, bool draws);
  /// Throws CLI::ValidationError for options that do not fit this dtype of q.
  void check(DType ofQ) const;
  bool areOfRows() const { return scales == "rows" || scales == "pages"; }
  /// Returns the dtype of out.
  DType outOf(DType ofQ) const;
};

/// Kernel options that operands would decide, for commands without operands.
struct TargetOptions {
  std::string arch; ///< empty: the command chooses; "native": that of the GPU
  std::string dtype = "bf16";
  int headDim = 128, headDimV = 0;
  int vInK = 0; ///< v is this many first columns of k; 0: a tensor of its own
  Fp8Options fp8;

  void addTo(CLI::App& command);
  /// Throws CLI::ValidationError for options that do not fit each other.
  void check() const;
  /// Returns the named arch; empty if none is named. Blame::Environment: "native" without a GPU.
  Expected<std::string> archAsked() const;
};

/// Static options of a forward kernel that do not follow from the operands.
struct KernelFlags {
  std::string family = "auto", tile;
#define ATTNC_CHOICE(type, member, c_type, name, limit, flag, text) type member = 0;
#include "attnc/choices.def"
  bool noCache = false;
  int64_t maxWork = 0;           ///< as in CompilerOptions
  std::vector<std::string> pins; // NAME=N

  void addTo(CLI::App& command);
  /// Fills family, tile, pins and what choices.def lists. Throws CLI::Error for a pin that is not an integer.
  PrepareOptions toOptions() const;
  CompilerOptions toCompilerOptions() const;
};

/// Returns the mod with its pins folded in. Throws CLI::ValidationError for a pin that names nothing or does not fit.
Expected<Mod> pinned(const Mod& mod, const KernelFlags& kernel);

/// Returns a CLI11 transform of names that dtypeOf() takes.
CLI::Validator dtypes();
/// Adds --dtype. Its value becomes one that dtypeOf() takes.
CLI::Option* addDType(CLI::App& command, std::string& dtype, const char* help);
/// Precondition: "bf16", "fp16", "fp32" or "e4m3".
DType dtypeOf(const std::string& name);

/// Adds --v-in-k: how many of k's first columns are v; 0: v is a tensor of its own.
CLI::Option* addVInK(CLI::App& command, int& columns);

/// Adds --set NAME=VALUE, which may be repeated.
void addSets(CLI::App& command, std::vector<std::string>& sets);

/// Throws an error as wrong usage if only the command line can have caused it; else does nothing.
void throwUsage(const char* option, const Error& error);

/// Prints an error to stderr. Returns the exit code for its blame.
int report(const Error& error);

/// Writes to stdout and flushes. A failure (a full disk behind a redirection, a closed stream) is Blame::Environment.
Status printResult(std::string_view text);

} // namespace attnc::cli
