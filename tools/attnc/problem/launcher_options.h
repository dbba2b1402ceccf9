// The launch that `emit --launcher` writes a host function for.
#pragma once

#include "cli_fwd.h"
#include "problem/operands.h"
#include "problem/options.h"
#include "problem/sequence_options.h"

#include "attnc/stages.h"

#include <optional>
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
  bool isAsked = false; ///< --launcher
  std::optional<ProblemShape> shape;
  std::vector<std::string> sets, strides; ///< NAME=VALUE, NAME=B,H,ROW

  void addTo(CLI::App& command);
  /// Throws CLI::Error for options that do not fit --stage and --launch.
  void check(const std::string& stage, bool isOneLaunch) const;
  /// Fills the launch of a kernel of these options. Throws CLI::Error for a shape or values that are missing.
  Status fill(Launcher& launcher, const Mod& mod, const KernelFlags& flags, const TargetOptions& target,
              const SequenceOptions& sequences, const KernelOptions& kernel) const;
};

} // namespace attnc::cli
