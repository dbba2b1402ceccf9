// The command-line options of `attnc run`.
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

struct RunOptions {
  ModOptions mod;
  KindOptions kernelKind;
  KernelFlags kernel;
  GradientOptions gradients;
  SequenceOptions sequences;
  std::string input, output;
  std::string savedOperands; ///< file for random operands; may be empty
  std::optional<RandomProblem> random;
  int vInK = 0;   ///< v is this many first columns of k; 0: a tensor of its own
  Fp8Options fp8; ///< of random operands, but outDType
  std::optional<LargeScores> large;
  std::string dtype = "bf16"; ///< dtype of random operands
  uint64_t seed = 0;
  std::string device = "auto";
  std::string arch;              ///< arch of kernels; empty or "native": that of the GPU
  std::vector<std::string> sets; ///< NAME=VALUE
  std::optional<double> scale;
  bool backward = false, verify = false, lse = false, rowMax = false, noBlockMask = false, json = false;
};

/// Returns the kernel options of the command line.
PrepareOptions prepareOptions(const RunOptions& options);

/// Throws CLI::ValidationError if options of e4m3 do not fit the random operands.
void checkFp8(const RunOptions& options);

/// Throws CLI::ValidationError if both the mod and the operands come from stdin.
void checkStdin(const RunOptions& options);

} // namespace attnc::cli
