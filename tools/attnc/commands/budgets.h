// Budgets of `attnc check`: what --budget allows a mod to cost.
#pragma once

#include "cli_fwd.h"
#include "commands/verdicts.h"
#include "problem/explain_options.h"

#include <string>
#include <vector>

namespace attnc::cli {

struct BudgetOptions {
  std::vector<std::string> texts;

  /// Adds --budget, and the options of the problem that it is about.
  void addTo(CLI::App& command, ExplainOptions& problem);
  /// Adds what came of the budgets. Throws CLI::ValidationError for one that is none.
  Status run(const Mod& mod, const ExplainOptions& problem, Verdicts& verdicts) const;
};

} // namespace attnc::cli
