// The launch that `emit --launcher` writes a host function for.
#pragma once

#include "cli_fwd.h"
#include "problem/operands.h"
#include "problem/problem_options.h"

#include "attnc/stages.h"

#include <string>
#include <vector>

namespace attnc::cli {

/// A launch, with what it points to.
struct Launcher {
  LaunchShape shape;
  HostOperands captures;
  Captures gradients; ///< of captures: f32, dense
  BlockMaskView mask;
};

struct LauncherOptions {
  bool isAsked = false;             ///< --launcher
  std::vector<std::string> strides; ///< NAME=B,H,ROW

  /// Adds the options, of which --shape and --set are those of `problem`.
  void addTo(CLI::App& command, ProblemOptions& problem);
  /// Throws CLI::Error for options that do not fit --stage and --launch.
  void check(const ProblemOptions& problem, const std::string& stage, bool isOneLaunch) const;
  /// Fills the launch of a kernel of these options. Throws CLI::Error for a shape or values that are missing.
  Status fill(Launcher& launcher, const Mod& mod, const ProblemOptions& problem, const KernelOptions& kernel) const;
};

} // namespace attnc::cli
