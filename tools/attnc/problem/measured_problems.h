// The problems that a command measures: those of --shape with drawn operands, or one from a file.
#pragma once

#include "cli_fwd.h"
#include "problem/problem_options.h"

#include "tools/device/device.h"

#include <string>
#include <vector>

namespace attnc::cli {

struct MeasuredProblems {
  ProblemOptions run;
  std::vector<std::string> kinds{"auto"}, shapes;
  const CLI::App* owner = nullptr; ///< the command

  /// Adds the options of the problems and of their kernels.
  void addTo(CLI::App& command);
  /// Whether --kernel names a kind.
  bool wants(const std::string& kind) const;
  /// Returns the GPU that `command` needs, current.
  static Expected<device::Context> gpu(const char* command);
  /// Throws CLI::ValidationError if options exclude each other. `command` is for messages. Returns an error if no
  /// problem is given, and there is no GPU.
  Status check(const char* command) const;
  /// Returns the options of each problem. Throws CLI::ValidationError for an invalid shape.
  std::vector<ProblemOptions> problems() const;
  /// Returns the problem with "--kernel KIND".
  static ProblemOptions ofKind(const ProblemOptions& problem, const std::string& kind);
};

} // namespace attnc::cli
