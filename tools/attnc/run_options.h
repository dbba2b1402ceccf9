// What `attnc run` is told on the command line.
#pragma once

#include "gradient_options.h"
#include "options.h"
#include "random.h"
#include "sequence_options.h"

#include "attnc/prepared.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attnc::cli {

/// `--random B,H,HKV,Q_LEN,KV_LEN,D`
struct RandomProblem {
  ProblemShape shape;
  int64_t headDim = 0;
};

/// Throws CLI::ValidationError for `option` where the head dim is none, or a tensor would be too large.
RandomProblem randomProblem(const char* option, const std::string& text, const ProblemShape& shape, int64_t headDim);

/// What --kernel says.
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
  std::optional<RandomProblem> random;
  std::optional<LargeScores> large;
  std::string dtype = "bf16"; ///< of random operands
  uint64_t seed = 0;
  std::string device = "auto";
  std::string arch; ///< of kernels; empty or "native": that of the GPU
  std::vector<std::string> sets; ///< NAME=VALUE
  std::optional<double> scale;
  bool backward = false, verify = false, lse = false, rowMax = false, noBlockMask = false;
};

/// What the command line says of the kernel.
PrepareOptions prepareOptions(const RunOptions& options);

/// Throws CLI::ValidationError where both the mod and the operands are to come from stdin.
void checkStdin(const RunOptions& options);

} // namespace attnc::cli
