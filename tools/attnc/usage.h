// Checks of values on the command line, and messages about wrong usage.
//
// Wrong usage is thrown as a CLI::Error; main.cpp catches it and prints it with reportUsage().
#pragma once

#include "attnc/kernel.h"

#include <CLI/CLI.hpp>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace attnc::cli {

/// The candidate that `word` is a misspelling of, in any case; "" if none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// A value of an enumeration, and other names for it.
struct Choice {
  std::string name;
  std::vector<std::string> aliases;
};

/// A CLI11 transform: one of the choices in any case, with '_' for '-' or the other way round; becomes its name.
CLI::Validator oneOf(std::vector<Choice> choices);

/// The names that an option with oneOf() or architecture() takes; empty for others.
std::vector<std::string> choicesOf(CLI::Option& option);

/// A CLI11 transform: "sm_90a", "SM90A", "compute_90a", "90a", "9.0a" become "sm_90a", and so does "sm_90", of which a
/// note is printed; "native" and "compute_90" stay. A GPU that neither attnc nor the installed NVRTC knows is refused.
CLI::Validator architecture();

// CLI11 checks; they give a message, or "".
std::string checkHeadDim(const std::string& text);
std::string checkSeed(const std::string& text);       ///< 0 .. 2^64 - 1
std::string checkScale(const std::string& text);      ///< a finite f32
std::string checkAssignment(const std::string& text); ///< NAME=VALUE

/// Values by name. Throws CLI::ValidationError for `option` if a name is given twice, since either value may be the one
/// that is meant. Precondition: the texts passed checkAssignment().
std::map<std::string, std::string> assignments(const char* option, const std::vector<std::string>& texts);

/// Numbers from 0 to ir::kMaxExtent, separated by commas, as many as `names` has ("B,H,HKV"). Throws
/// CLI::ValidationError for `option`.
std::vector<int64_t> parseExtents(const char* option, const std::string& text, const std::string& names);
/// Five numbers B, H, HKV, Q_LEN, KV_LEN. Throws CLI::ValidationError where H is no multiple of HKV.
ProblemShape shapeOf(const char* option, const std::string& text, const std::vector<int64_t>& extents);

/// Wrong usage of an option, to be thrown. `hint`: how to mend it; empty: what the option takes is told.
CLI::ValidationError wrongUsage(const std::string& option, const std::string& what, const std::string& hint);

/// Throws CLI::ValidationError for `option` if `output` is the same file as one of the inputs, by whatever path or
/// link: writing it would lose what is read. "-" is stdin or stdout.
void refuseOntoInput(const char* option, const std::string& output, const std::vector<std::string>& inputs);

/// Prints wrong usage to stderr, with a hint that is its own. Returns the exit code.
int reportUsage(const CLI::App& app, const CLI::ParseError& error);

} // namespace attnc::cli
