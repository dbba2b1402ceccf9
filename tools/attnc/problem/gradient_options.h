// Which captures want gradients, which sums of the mod have one, and how gradients are summed. Used by commands that
// know a backward pass.
#pragma once

#include "cli_fwd.h"

#include "attnc/mod.h"

#include <set>
#include <string>
#include <vector>

namespace attnc::cli {

/// Returns the name of the sum whose gradient a capture holds.
std::string sumOf(const CaptureInfo& gradient);

struct GradientOptions {
  std::vector<std::string> captures = {"all"}; ///< names, also of sums, or a single "all" or "none"
  bool deterministic = false;

  void addTo(CLI::App& command);
  /// Throws CLI::ValidationError if one of the options is given without a backward pass.
  void check(bool isBackward) const;
  /// Returns the captures that want gradients; for "all", those that a gradient reaches. Throws CLI::ValidationError
  /// for a name that is neither a captured float nor a sum. `ofOutputs`: whether sums have gradients.
  Expected<std::set<std::string>> wanted(const Mod& mod, bool ofOutputs = false) const;
  /// Returns the captures that hold gradients of sums, of those that the loss reads.
  std::vector<CaptureInfo> ofOutputs(const Mod& mod) const;
  /// Whether captures and sums are named one by one.
  bool areNamed() const;
};

} // namespace attnc::cli
