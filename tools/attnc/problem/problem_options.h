// A problem as a command is given it: the mod, the operands (from a file, drawn, or shapes), and the kernel.
#pragma once

#include "problem/gradient_options.h"
#include "problem/options.h"
#include "problem/random.h"
#include "problem/sequence_options.h"

#include "attnc/prepared.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attnc::cli {

/// A problem whose operands are drawn.
struct RandomProblem {
  ProblemShape shape;
  int64_t headDim = 0;
};

/// Parses a random problem. Throws CLI::ValidationError for `option` if the head dim is invalid, or a tensor would be
/// too large.
RandomProblem randomProblem(const char* option, const std::string& text, const ProblemShape& shape, int64_t headDim);

/// The value of --kernel.
struct KindOptions {
  std::string kind = "auto"; ///< "auto", "forward", "decode"; with `takesBackward` also "backward"

  void addTo(CLI::App& command, bool takesBackward);
  /// As PrepareOptions::decode.
  std::optional<bool> decode() const;
};

/// Commands have options for the members that they read.
struct ProblemOptions {
  ModOptions mod;
  TargetOptions target; ///< of operands that no file gives, but arch and outDType
  KindOptions kernelKind;
  KernelFlags kernel;
  GradientOptions gradients;
  SequenceOptions sequences;
  std::string input, output;
  std::string savedOperands;           ///< file for random operands; may be empty
  std::optional<ProblemShape> shape;   ///< for commands that draw only captures
  std::optional<RandomProblem> random; ///< for commands that draw all operands
  std::optional<LargeScores> large;
  uint64_t seed = 0;
  std::string device = "auto";
  std::vector<std::string> sets; ///< NAME=VALUE
  std::optional<double> scale;
  bool backward = false, verify = false, lse = false, rowMax = false, noBlockMask = false, json = false;
  bool hasSoftmax = true; ///< Whether the mod has no weight_mod, once it is loaded.
};

/// Returns the kernel options of the command line.
PrepareOptions prepareOptions(const ProblemOptions& options);

/// Throws CLI::ValidationError if options of e4m3 do not fit the random operands.
void checkFp8(const ProblemOptions& options);

/// Throws CLI::ValidationError if both the mod and the operands come from stdin.
void checkStdin(const ProblemOptions& options);

} // namespace attnc::cli
