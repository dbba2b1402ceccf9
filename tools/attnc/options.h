// Options that subcommands share: which mod, which kernel; and how errors are told.
#pragma once

#include "attnc/kernel.h"
#include "attnc/mod.h"

#include <CLI/CLI.hpp>

#include <map>
#include <string>
#include <vector>

namespace attnc::cli {

/// Where the mod's text comes from: a path, or the text itself.
struct ModOptions {
  std::string path, expression;
  std::vector<std::string> defines; // NAME=VALUE

  void addTo(CLI::App& command);
  /// Reads and checks the mod. Throws CLI::Error unless exactly one of path and expression is given.
  Expected<Mod> load() const;
};

/// What a kernel is compiled for where there are no operands to tell.
struct TargetOptions {
  std::string arch; ///< empty: the command finds one
  std::string dtype = "bf16";
  int headDim = 128, headDimV = 0;

  void addTo(CLI::App& command);
  void fill(KernelOptions& kernel) const;
};

/// What is static in a forward kernel and not known from the operands.
struct KernelFlags {
  std::string family = "auto";
  bool tf32 = false;
  bool noCache = false;
  std::vector<std::string> pins; // NAME=N

  void addTo(CLI::App& command);
  /// Fills family, tf32 and pins. Throws CLI::Error for a pin that is no integer.
  KernelOptions toOptions() const;
  CompilerOptions toCompilerOptions() const;
};

/// "bf16", "fp16", "fp32" (and the spellings of mods: "f16", "f32"); for use as CLI11 transform.
const std::map<std::string, std::string>& dtypeSpellings();
/// Precondition: a value of dtypeSpellings().
DType dtypeOf(const std::string& spelling);

/// A CLI11 check: NAME=VALUE.
std::string checkAssignment(const std::string& text);
/// Values by name. Throws CLI::ValidationError for `option` where a name is given twice: none of its values would be
/// more right than the other. Precondition: the texts passed checkAssignment().
std::map<std::string, std::string> assignments(const char* option, const std::vector<std::string>& texts);

/// Numbers from 0 to ir::kMaxExtent, separated by commas, as many as `names` has ("B,H,HKV"). Throws
/// CLI::ValidationError for `option`.
std::vector<int64_t> parseExtents(const char* option, const std::string& text, const std::string& names);
/// Five numbers B, H, HKV, Q_LEN, KV_LEN. Throws CLI::ValidationError where H is no multiple of HKV.
ProblemShape shapeOf(const char* option, const std::string& text, const std::vector<int64_t>& extents);

const char* familyName(Family family);

/// Tells an error on stderr; gives the exit code that its blame asks for.
int report(const Error& error);

/// Writes to stdout and flushes; a failure (a full disk behind a redirection) is Blame::Environment.
Status printResult(std::string_view text);

} // namespace attnc::cli
