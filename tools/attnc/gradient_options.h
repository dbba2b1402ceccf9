// Which captures want gradients, and how these add up: for the commands that know a backward pass.
#pragma once

#include "attnc/mod.h"

#include <CLI/CLI.hpp>

#include <set>
#include <string>
#include <vector>

namespace attnc::cli {

struct GradientOptions {
  std::vector<std::string> captures = {"all"}; ///< names; "all" or "none" alone
  bool deterministic = false;

  void addTo(CLI::App& command);
  /// Throws CLI::ValidationError where one of the options is given and there is no backward pass.
  void check(bool isBackward) const;
  /// The captures that are asked for: by "all", those that a gradient arrives at. Throws CLI::ValidationError for a
  /// name that is no captured float.
  Expected<std::set<std::string>> wanted(const Mod& mod) const;
};

} // namespace attnc::cli
