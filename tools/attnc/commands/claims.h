// Claims of `attnc check`: what --prove, --never, --every-row-lives and --same-as ask.
#pragma once

#include "cli_fwd.h"
#include "commands/verdicts.h"
#include "problem/options.h"
#include "problem/sequence_options.h"

#include <string>
#include <vector>

namespace attnc::cli {

struct ClaimOptions {
  std::vector<std::string> holds, never, assumptions;
  std::string sameAs;
  bool rowsLive = false;
  SequenceOptions sequences;
  double seconds = 10;

  void addTo(CLI::App& command);
  bool areAny() const { return !holds.empty() || !never.empty() || !sameAs.empty() || rowsLive; }
  /// Throws CLI::ValidationError for assumptions without a claim.
  void check() const;
  /// Proves the claims in turn, and adds what came of them. `options`: how the mod was read.
  Status run(const Mod& mod, const ModOptions& options, Verdicts& verdicts) const;
};

} // namespace attnc::cli
