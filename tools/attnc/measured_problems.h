// The problems that a command measures: of --shape, with operands drawn, or one of a file.
#pragma once

#include "run_options.h"

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace attnc::cli {

struct MeasuredProblems {
  RunOptions run;
  std::vector<std::string> kinds{"auto"}, shapes;
  int headDim = 128;

  /// Adds the options of the problems and of their kernels.
  void addTo(CLI::App& command);
  /// Whether --kernel names a kind.
  bool wants(const std::string& kind) const;
  /// Throws CLI::ValidationError where options exclude each other. `command`: for messages.
  void check(const char* command) const;
  /// Options of each problem. Throws CLI::ValidationError for a shape that is none.
  std::vector<RunOptions> problems() const;
  /// "--kernel KIND" of a problem.
  static RunOptions ofKind(const RunOptions& problem, const std::string& kind);
};

} // namespace attnc::cli
