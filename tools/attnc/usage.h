// Checks of values on the command line, and messages about wrong usage.
//
// Wrong usage throws a CLI::Error; main.cpp catches it and prints it with reportUsage().
#pragma once

#include "cli_fwd.h"

#include "attnc/kernel.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attnc::cli {

/// Returns the candidate that `word` is a misspelling of, ignoring case; "" if none is close.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// Returns "did you mean 'x'?" for a misspelling of a candidate, else `otherwise`.
std::string didYouMean(std::string_view word, const std::vector<std::string>& candidates, const std::string& otherwise);

/// A value of an enumeration, and other names for it.
struct Choice {
  std::string name;
  std::vector<std::string> aliases;
  Choice(const char* name, std::vector<std::string> aliases = {}) : name(name), aliases(std::move(aliases)) {}
  Choice(std::string name, std::vector<std::string> aliases = {})
      : name(std::move(name)), aliases(std::move(aliases)) {}
};

/// Returns a CLI11 transform: accepts one of the choices in any case, with '_' and '-' interchangeable, and yields its
/// name.
/// `instead`: hints for words that are none, by word.
CLI::Validator oneOf(std::vector<Choice> choices, std::map<std::string, std::string> instead = {});

/// Returns hints for dtypes that kernels do not compute in, for oneOf().
std::map<std::string, std::string> dtypeHints();

/// Returns the names that an option with oneOf() or architecture() takes; empty for others.
std::vector<std::string> choicesOf(CLI::Option& option);

/// Returns a CLI11 transform: "sm_90a", "SM90A", "compute_90a", "90a", "9.0a" become "sm_90a". So does "sm_90", with a
/// printed note. "native" and "compute_90" stay. A GPU that neither attnc nor the installed NVRTC knows is an error.
CLI::Validator architecture();

// CLI11 checks. They return a message, or "".
std::string checkHeadDim(const std::string& text);    ///< of q and k
std::string checkHeadDimV(const std::string& text);   ///< of v and out
std::string checkVInK(const std::string& text);       ///< of v, if it lies in k
std::string checkSeed(const std::string& text);       ///< 0 .. 2^64 - 1
std::string checkScale(const std::string& text);      ///< a finite f32
std::string checkAssignment(const std::string& text); ///< NAME=VALUE

/// Returns values by name. Throws CLI::ValidationError for `option` if a name is given twice, because either value may
/// be meant. Precondition: the texts passed checkAssignment().
std::map<std::string, std::string> assignments(const char* option, const std::vector<std::string>& texts);

/// Parses numbers from 0 to kMaxExtent, separated by commas or x, as many as `names` lists ("B,H,HKV"). Throws
/// CLI::ValidationError for `option`.
std::vector<int64_t> parseExtents(const char* option, const std::string& text, const std::string& names);
/// A problem as --shape spells it.
struct ShapeText {
  ProblemShape shape;
  std::optional<int> headDim; ///< its sixth number, if it is given
};
/// Parses B,H,HKV,Q_LEN,KV_LEN, which a head dim may follow; or Q_LEN,KV_LEN; or one length for both. Where lengths are
/// all that is given, the rest is that of `others`. Throws CLI::ValidationError for `option`.
ShapeText parseShape(const char* option, const std::string& text, const ProblemShape& others);
/// The name of its value in --help.
inline constexpr const char* kShapeName = "B,H,HKV,Q_LEN,KV_LEN[,D]";
/// The problem where --shape gives only lengths, or is not given, for commands that choose a kernel.
inline constexpr ProblemShape kUsualShape{1, 16, 16, 8192, 8192};
/// Returns the head dim of --shape, else `headDim`, which is that of --head-dim. Throws CLI::ValidationError if the
/// command was given both, and they differ.
int headDimOf(const ShapeText& shape, const CLI::App& command, int headDim);

/// Parses five numbers B, H, HKV, Q_LEN, KV_LEN. Throws CLI::ValidationError if H is not a multiple of HKV.
ProblemShape shapeOf(const char* option, const std::string& text, const std::vector<int64_t>& extents);

/// Returns the error to throw for wrong usage of an option. `hint`: how to repair it. If empty, the hint is what the
/// option takes.
CLI::ValidationError wrongUsage(const std::string& option, const std::string& what, const std::string& hint);

/// Throws CLI::ValidationError for `option` if it asks for safetensors on stdout, and that is a terminal.
void refuseOntoTerminal(const char* option, const std::string& output);

/// Throws CLI::ValidationError for `option` if `output` is the same file as one of the inputs, by any path or link:
/// writing it would destroy the input. "-" is stdin or stdout.
void refuseOntoInput(const char* option, const std::string& output, const std::vector<std::string>& inputs);

/// Throws CLI::ValidationError for -o if a picture is to be written to a file whose name does not end in .svg.
void refuseUnlessSvg(const std::string& output);

/// Returns a hint for a file that cannot be read: the file of a similar name in its folder; empty if none is.
std::string fileRepair(const std::string& path);

/// Prints wrong usage to stderr, with its own hint. Returns the exit code.
int reportUsage(const CLI::App& app, const CLI::ParseError& error);

} // namespace attnc::cli
