// Which captures want gradients, and how these are summed. Used by commands that know a backward pass.
#pragma once

#include "cli_fwd.h"

#include "attnc/mod.h"

#include <set>
#include <string>
#include <vector>

namespace attnc::cli {

struct GradientOptions {
  std::vector<std::string> captures = {"all"}; ///< names, or a single "all" or "none"
  bool deterministic = false;

  void addTo(CLI::App& command);
  /// Throws CLI::ValidationError if one of the options is given without a backward pass.
  void check(bool isBackward) const;
  /// Returns the captures that want gradients; for "all", those that a gradient reaches. Throws CLI::ValidationError
  /// for a name that is not a captured float.
  Expected<std::set<std::string>> wanted(const Mod& mod) const;
};

} // namespace attnc::cli
